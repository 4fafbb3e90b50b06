// SPDX-License-Identifier: MIT
// llama.cpp is the judge of the files that offline/synth writes: it loads them, gives
// usable logits, and its own quantiser chooses the same types.
#include <ggml-cpp.h>
#include <gtest/gtest.h>
#include <llama.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "base/text.h"
#include "compute/backends.h"
#include "offline/synth/synth_types.h"
#include "tests/support/product_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro {
namespace {

struct ModelDeleter {
  void operator()(llama_model* model) const { llama_model_free(model); }
};
struct ContextDeleter {
  void operator()(llama_context* context) const { llama_free(context); }
};
using Model = std::unique_ptr<llama_model, ModelDeleter>;
using Context = std::unique_ptr<llama_context, ContextDeleter>;

const std::vector<llama_token> kTokens = {5, 99, 411, 7, 300, 12};

class Judged : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    llama_log_set(
        [](ggml_log_level level, const char* text, void*) {
          if (level == GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
        },
        nullptr);
    LoadCpuBackend();  // ggml's "load all" asks every GPU's driver, 80 ms in each process
    llama_backend_init();
  }

  void SetUp() override {
    dir_ = std::filesystem::temp_directory_path() /
           Format("moestro-tiny-{}-{}", getpid(), static_cast<const void*>(this));
    std::filesystem::create_directories(dir_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  static Model Load(const std::string& path) {
    llama_model_params params = llama_model_default_params();
    params.n_gpu_layers = 0;
    params.use_extra_bufts = false;
    return Model(llama_model_load_from_file(path.c_str(), params));
  }

  // Logits of the last of `tokens`; empty when llama.cpp refuses.
  static std::vector<float> Logits(llama_model* model, std::vector<llama_token> tokens,
                                   llama_context_params params = llama_context_default_params()) {
    params.n_ctx = 512;
    params.n_threads = 1;
    params.n_threads_batch = 1;
    const Context context(llama_init_from_model(model, params));
    const auto count = static_cast<int32_t>(tokens.size());
    if (!context || llama_decode(context.get(), llama_batch_get_one(tokens.data(), count)) != 0) {
      return {};
    }
    const float* logits = llama_get_logits_ith(context.get(), -1);
    return {logits, logits + llama_vocab_n_tokens(llama_model_get_vocab(model))};
  }

  static double Deviation(const std::vector<float>& values) {
    double sum = 0;
    double squares = 0;
    for (const float value : values) {
      sum += static_cast<double>(value);
      squares += static_cast<double>(value) * static_cast<double>(value);
    }
    const double n = static_cast<double>(values.size());
    return std::sqrt(squares / n - sum * sum / n / n);
  }

  // Logits that are finite, spread like a softmax likes them, and move with the last token.
  void ExpectUsable(const std::string& path, size_t vocab, const std::string& what) {
    const Model model = Load(path);
    ASSERT_TRUE(model) << what;
    std::vector<llama_token> other = kTokens;
    other.back() = 200;
    const std::vector<float> a = Logits(model.get(), kTokens);
    const std::vector<float> b = Logits(model.get(), other);
    ASSERT_EQ(a.size(), vocab) << what;
    ASSERT_EQ(b.size(), vocab) << what;
    for (const float logit : a) ASSERT_TRUE(std::isfinite(logit)) << what;
    EXPECT_GT(Deviation(a), 0.5) << what;
    EXPECT_LT(Deviation(a), 2.0) << what;
    std::vector<float> change(vocab);
    std::ranges::transform(a, b, change.begin(), std::minus());
    EXPECT_GT(Deviation(change), 0.5) << what;
  }

  std::filesystem::path dir_;
};

class TinyModel : public Judged, public testing::WithParamInterface<std::string> {};

// Types of one architecture.
struct TypesOfArch {
  std::string arch;
  std::vector<std::string> types;
};
void PrintTo(const TypesOfArch& one, std::ostream* out) { *out << one.types.size() << " types"; }

// A product of architectures and types. The cover has each architecture in two types, one that is
// plain numbers or in small blocks and one that is not, and each type with a few architectures.
std::vector<TypesOfArch> TypesOfPart(uint32_t part) {
  struct Cell {
    std::string arch;
    std::string type;
  };
  std::vector<Cell> cells;
  for (const std::string& arch : TinyArchs()) {
    for (const std::string& type : SchemeNames()) cells.push_back({arch, type});
  }
  const auto keys_of = [](const Cell& cell) {
    return Keys{cell.type, cell.arch + (cell.type.contains("_K") ? " K" : "")};
  };
  std::vector<TypesOfArch> all;
  for (const Cell& cell : CellsOfPart(part, cells, keys_of)) {
    if (all.empty() || all.back().arch != cell.arch) all.push_back({cell.arch, {}});
    all.back().types.push_back(cell.type);
  }
  return all;
}

class TypesOfTinyModel : public Judged, public testing::WithParamInterface<TypesOfArch> {};

TEST_P(TypesOfTinyModel, LoadAndDecode) {
  const auto& [arch, types] = GetParam();
  for (const std::string& type : types) {
    ExpectUsable(WriteTinyModel(dir_, {.arch = arch, .type = type}), 512, arch + " " + type);
  }
}

MOESTRO_INSTANTIATE_PARTS(TypesOfTinyModel, TypesOfPart,
                          [](const auto& one) { return CaseName(one.param.arch); });

TEST_P(TinyModel, LoadsAsShards) {
  const Model whole = Load(WriteTinyModel(dir_, {.arch = GetParam(), .type = "F16"}));
  const Model split = Load(WriteTinyModel(dir_, {.arch = GetParam(), .type = "F16", .shards = 4}));
  ASSERT_TRUE(whole && split);
  const std::vector<float> logits = Logits(whole.get(), kTokens);
  ASSERT_FALSE(logits.empty());
  EXPECT_EQ(logits, Logits(split.get(), kTokens));
}

TEST_P(TinyModel, LoadsWithATokenizer) {
  const std::string path = WriteTinyModel(
      dir_, {.arch = GetParam(), .vocab_path = MOESTRO_SOURCE_DIR "/models/stories-moe-q8_0.gguf"});
  ExpectUsable(path, 4096, GetParam());
  const Model model = Load(path);
  ASSERT_TRUE(model);
  std::vector<llama_token> tokens(16);
  const int32_t count = llama_tokenize(llama_model_get_vocab(model.get()), "Once upon a time", 16,
                                       tokens.data(), 16, false, false);
  EXPECT_GE(count, 3);
  EXPECT_LE(count, 8);
}

using TypeTable = std::map<std::string, std::string>;

TypeTable TypesOf(const std::string& path) {
  const gguf_context_ptr gguf{
      gguf_init_from_file(path.c_str(), {.no_alloc = true, .ctx = nullptr})};
  TypeTable types;
  for (int64_t i = 0; gguf && i < gguf_get_n_tensors(gguf.get()); ++i) {
    types[gguf_get_tensor_name(gguf.get(), i)] =
        ggml_type_name(gguf_get_tensor_type(gguf.get(), i));
  }
  return types;
}

// Files that llama.cpp's quantiser and ours make of one model.
struct Quantised {
  std::string arch;
  const char* type = "";
  llama_ftype ftype = LLAMA_FTYPE_ALL_F32;
  uint32_t experts = 4;
  bool is_pure = true;
};
void PrintTo(const Quantised& one, std::ostream* out) { *out << one.arch << " " << one.type; }

// A product of architectures and types. The cover has each of both.
std::vector<Quantised> QuantisedOfPart(uint32_t part) {
  std::vector<Quantised> cells;
  for (const std::string& arch : TinyArchs()) {
    cells.insert(cells.end(), {{arch, "Q4_K_M", LLAMA_FTYPE_MOSTLY_Q4_K_M, 8, false},
                               {arch, "Q4_K_M", LLAMA_FTYPE_MOSTLY_Q4_K_M, 10, false},
                               {arch, "Q2_K", LLAMA_FTYPE_MOSTLY_Q2_K},
                               {arch, "Q3_K", LLAMA_FTYPE_MOSTLY_Q3_K_S},
                               {arch, "Q4_K", LLAMA_FTYPE_MOSTLY_Q4_K_S},
                               {arch, "Q5_K", LLAMA_FTYPE_MOSTLY_Q5_K_S},
                               {arch, "Q6_K", LLAMA_FTYPE_MOSTLY_Q6_K},
                               {arch, "IQ4_XS", LLAMA_FTYPE_MOSTLY_IQ4_XS},
                               {arch, "MXFP4", LLAMA_FTYPE_MOSTLY_MXFP4_MOE, 4, false}});
  }
  return CellsOfPart(part, cells, [](const Quantised& cell) {
    return Keys{cell.arch, Format("{} {}", cell.type, cell.experts)};
  });
}

class QuantisedTinyModel : public Judged, public testing::WithParamInterface<Quantised> {};

TEST_P(QuantisedTinyModel, TypesAreThoseOfLlamasQuantiser) {
  const Quantised& c = GetParam();
  // Nine layers tell apart which of them a mix favours; narrow matrices keep it quick.
  TinySpec spec = {.arch = c.arch,
                   .type = "F16",
                   .layers = c.is_pure ? 1U : 9U,
                   .experts = c.experts,
                   .ff = 32,
                   .shared_ff = 32,
                   .vocab = 64};
  const std::string source = WriteTinyModel(dir_, spec);
  const std::string theirs = (dir_ / "theirs.gguf").string();
  llama_model_quantize_params params = llama_model_quantize_default_params();
  params.nthread = 1;
  params.ftype = c.ftype;
  params.pure = c.is_pure;
  ASSERT_EQ(llama_model_quantize(source.c_str(), theirs.c_str(), &params), 0U);
  spec.type = c.type;
  EXPECT_EQ(TypesOf(WriteTinyModel(dir_, spec)), TypesOf(theirs));
}

MOESTRO_INSTANTIATE_PARTS(QuantisedTinyModel, QuantisedOfPart, [](const auto& one) {
  return CaseName(one.param.arch) + "_" + one.param.type + "_" + std::to_string(one.param.experts);
});

// Counts, per layer and expert, how often llama.cpp's own routing chooses it.
struct RoutingCounts {
  std::map<std::string, std::vector<int>> by_layer;

  static bool Observe(ggml_tensor* tensor, bool ask, void* user) {
    const std::string name = tensor->name;
    const bool is_wanted = name.starts_with("ffn_moe_topk-");
    if (ask || !is_wanted) return is_wanted;
    if (tensor->ne[1] == 1) return true;  // the last layer: only the token whose logits are wanted
    std::vector<int>& counts = static_cast<RoutingCounts*>(user)->by_layer[name];
    counts.resize(64);
    std::vector<std::byte> bytes(ggml_nbytes(tensor));
    ggml_backend_tensor_get(tensor, bytes.data(), 0, bytes.size());
    for (int64_t token = 0; token < tensor->ne[1]; ++token) {
      for (int64_t k = 0; k < tensor->ne[0]; ++k) {
        int32_t expert = 0;
        const size_t at =
            static_cast<size_t>(token) * tensor->nb[1] + static_cast<size_t>(k) * tensor->nb[0];
        std::memcpy(&expert, bytes.data() + at, sizeof expert);
        ++counts.at(static_cast<size_t>(expert));
      }
    }
    return true;
  }

  // Share of all choices that go to the 8 most popular of 64 experts, averaged over layers.
  double TopShare() const {
    double sum = 0;
    for (auto [name, counts] : by_layer) {
      std::ranges::sort(counts, std::greater());
      int all = 0;
      int top = 0;
      for (size_t e = 0; e < counts.size(); ++e) {
        all += counts[e];
        top += e < 8 ? counts[e] : 0;
      }
      sum += static_cast<double>(top) / all;
    }
    return sum / static_cast<double>(by_layer.size());
  }
};

// Of most models libllama computes the experts of the last layer for the last token alone.
size_t CountedLayers(const std::string& arch, size_t layers) {
  const bool is_whole = arch == "nemotron_h_moe" || arch == "glm5-next" || arch == "deepseek4";
  return is_whole ? layers : layers - 1;
}

TEST_P(TinyModel, SkewIsSeenInTheRealRouting) {
  std::vector<llama_token> tokens;
  for (int i = 0; i < 500; ++i) tokens.push_back(i * 7 % 512);
  std::map<double, double> shares;
  for (const double skew : {0.0, 1.0}) {
    const Model model = Load(WriteTinyModel(dir_, {.arch = GetParam(),
                                                   .layers = 4,
                                                   .experts = 64,
                                                   .used = 8,
                                                   .dense_layers = 0,
                                                   .skew = skew}));
    ASSERT_TRUE(model);
    RoutingCounts counts;
    llama_context_params params = llama_context_default_params();
    params.cb_eval = RoutingCounts::Observe;
    params.cb_eval_user_data = &counts;
    ASSERT_FALSE(Logits(model.get(), tokens, params).empty());
    ASSERT_EQ(counts.by_layer.size(), CountedLayers(GetParam(), 4));
    shares[skew] = counts.TopShare();
  }
  // Perfectly even routing would give the 8 favourites 1/8 of the choices; random rows and 500
  // tokens spread that a little. A Zipf exponent of 1, capped, gives them 0.41.
  EXPECT_LT(shares[0.0], 0.25);
  EXPECT_GT(shares[1.0], 0.33);
}

// In an earlier version every token went to the same few experts from the tenth layer on.
TEST_P(TinyModel, RoutingStaysEvenInDeepModels) {
  std::vector<llama_token> tokens;
  for (int i = 0; i < 300; ++i) tokens.push_back(i * 7 % 512);
  const Model model = Load(WriteTinyModel(
      dir_,
      {.arch = GetParam(), .layers = 24, .experts = 64, .used = 8, .ff = 32, .dense_layers = 0}));
  ASSERT_TRUE(model);
  RoutingCounts counts;
  llama_context_params params = llama_context_default_params();
  params.cb_eval = RoutingCounts::Observe;
  params.cb_eval_user_data = &counts;
  ASSERT_FALSE(Logits(model.get(), tokens, params).empty());
  ASSERT_EQ(counts.by_layer.size(), CountedLayers(GetParam(), 24));
  EXPECT_LT(counts.TopShare(), 0.25);
}

// The cover has each kind of mixers, router, experts and norms.
std::vector<std::string> ArchsOfPart(uint32_t part) {
  return CellsOfPart(part, TinyArchs(), TraitsOf);
}

MOESTRO_INSTANTIATE_PARTS(TinyModel, ArchsOfPart,
                          [](const auto& test) { return CaseName(test.param); });

using TinyModelFree = TinyModel;
TEST_P(TinyModelFree, LoadsWithoutAnOutputMatrix) {
  ExpectUsable(WriteTinyModel(dir_, {.arch = GetParam(), .is_tied = true}), 512, GetParam());
}
TEST_P(TinyModelFree, LoadsWithHeadsWiderThanTheEmbedding) {
  const TinySpec spec = {.arch = GetParam(), .heads = 8, .kv_heads = 2, .head_dim = 64};
  ExpectUsable(WriteTinyModel(dir_, spec), 512, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Architectures, TinyModelFree, testing::Values("llama", "qwen3moe"),
                         [](const auto& test) { return CaseName(test.param); });

}  // namespace
}  // namespace moestro
