// SPDX-License-Identifier: MIT
// Embeddings of the hosted engine beside plain libllama's of one text at a time.
#include <gtest/gtest.h>
#include <llama.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/system_limits.h"
#include "compute/backends.h"
#include "hosted/hosted_engine.h"
#include "load/open_engine.h"
#include "model/gguf_testing.h"
#include "model/vocab.h"
#include "tests/support/llama_zoo_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

constexpr uint32_t kTextRows = 256;
constexpr uint32_t kByMean = 1;
constexpr uint32_t kByCls = 2;
constexpr uint32_t kByLast = 3;

using EmbeddingValues = std::vector<float>;

struct EmbeddingKind {
  std::string arch;
  uint32_t pooling = kByMean;
  bool is_causal = false;
};

// A model in plain libllama, all of it in memory, that embeds a text of at most kTextRows tokens.
class PlainEmbedder {
 public:
  explicit PlainEmbedder(const std::string& path) {
    LoadCpuBackend();
    std::array<ggml_backend_dev_t, 1> none = {nullptr};
    llama_model_params params = llama_model_default_params();
    params.devices = none.data();
    params.n_gpu_layers = 0;
    params.use_extra_bufts = false;
    model_.reset(llama_model_load_from_file(path.c_str(), params));
    CHECK(model_ != nullptr);
    llama_context_params shape = llama_context_default_params();
    shape.n_ctx = shape.n_batch = shape.n_ubatch = kTextRows;
    shape.embeddings = true;
    shape.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    shape.type_k = shape.type_v = GGML_TYPE_F32;
    shape.n_threads = shape.n_threads_batch = 1;
    context_.reset(llama_init_from_model(model_.get(), shape));
    CHECK(context_ != nullptr);
  }

  EmbeddingValues Embed(std::span<const Token> text) {
    llama_batch batch = llama_batch_init(static_cast<int32_t>(text.size()), 0, 1);
    batch.n_tokens = static_cast<int32_t>(text.size());
    for (size_t i = 0; i < text.size(); ++i) {
      batch.token[i] = text[i];
      batch.pos[i] = static_cast<llama_pos>(i);
      batch.n_seq_id[i] = 1;
      batch.seq_id[i][0] = 0;
      batch.logits[i] = 1;
    }
    if (llama_memory_t memory = llama_get_memory(context_.get())) llama_memory_clear(memory, true);
    CHECK(llama_decode(context_.get(), batch) == 0);
    llama_batch_free(batch);
    const float* const values = llama_get_embeddings_seq(context_.get(), 0);
    CHECK(values != nullptr);
    return {values, values + llama_model_n_embd_out(model_.get())};
  }

 private:
  struct Free {
    void operator()(llama_model* model) const { llama_model_free(model); }
    void operator()(llama_context* context) const { llama_free(context); }
  };
  std::unique_ptr<llama_model, Free> model_;
  std::unique_ptr<llama_context, Free> context_;
};

EmbeddingValues Normalised(EmbeddingValues values) {
  double sum = 0.0;
  for (const float value : values) sum += static_cast<double>(value) * value;
  for (float& value : values) value /= static_cast<float>(std::sqrt(sum));
  return values;
}

double Difference(const EmbeddingValues& a, const EmbeddingValues& b) {
  if (a.size() != b.size()) return INFINITY;
  double most = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(static_cast<double>(a[i]) - b[i]));
  }
  return most;
}

std::vector<Token> EmbeddedText(size_t length, int32_t seed) {
  std::vector<Token> text(length);
  for (size_t i = 0; i < length; ++i) {
    text[i] = (seed * 31 + static_cast<int32_t>(i) * (7 + seed % 5)) % 256;
  }
  return text;
}

EngineOptions ForEmbeddings() {
  EngineOptions options;
  options.threads = 1;
  options.ctx = kTextRows;
  return options;
}

Result<std::unique_ptr<Engine>> OpenEmbedding(const std::string& path,
                                              const EngineOptions& options) {
  TRY(ModelToLoad model, ModelToLoad::Open(path, "auto", ModelToLoad::Use::kAny));
  return OpenEngine(std::move(model), options);
}

// All texts' embeddings, by as many calls as that takes.
Result<std::vector<EmbeddingValues>> EmbedAll(Engine& engine,
                                              const std::vector<std::vector<Token>>& texts,
                                              size_t* calls = nullptr) {
  Embedder* const embedder = FindEmbedder(engine);
  if (embedder == nullptr) return Fail(Errc::kUnsupported, "writes texts");
  const std::vector<std::span<const Token>> spans(texts.begin(), texts.end());
  std::vector<EmbeddingValues> all(texts.size());
  for (size_t first = 0; first < texts.size();) {
    const auto take = [&](size_t text, std::span<const float> values) {
      all[first + text].assign(values.begin(), values.end());
    };
    TRY(const size_t n, embedder->Embed(std::span(spans).subspan(first), take));
    first += n;
    if (calls != nullptr) ++*calls;
  }
  return all;
}

class HostedEmbeddingsTest : public ::testing::TestWithParam<EmbeddingKind> {
 protected:
  std::string WriteModel() const {
    const EmbeddingKind& kind = GetParam();
    return WriteZooModel(
        folder_.path(), kind.arch,
        {.context = kTextRows, .is_causal = kind.is_causal, .pooling = kind.pooling});
  }

  TempFolder folder_;
};

const std::vector<size_t> kTextLengths = {1, 5, 40, kTextRows, 3, 17, 90, 90, 2};

TEST_P(HostedEmbeddingsTest, AreThoseOfLibllamaForEachTextAlone) {
  const std::string path = WriteModel();
  const auto engine = OpenEmbedding(path, ForEmbeddings());
  ASSERT_TRUE(engine) << engine.error().message;
  std::vector<std::vector<Token>> texts;
  for (const size_t length : kTextLengths) {
    texts.push_back(EmbeddedText(length, static_cast<int32_t>(texts.size())));
  }
  size_t calls = 0;
  const auto got = EmbedAll(**engine, texts, &calls);
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_LT(calls, texts.size());
  PlainEmbedder plain(path);
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_LT(Difference(Normalised((*got)[i]), Normalised(plain.Embed(texts[i]))), 1e-5)
        << "text " << i;
  }
  EXPECT_EQ(FindEmbedder(**engine)->n_embd(), 128U);
  EXPECT_EQ((*engine)->stats().prefill.tokens, 504U);
}

TEST_P(HostedEmbeddingsTest, DoNotDependOnTheBudgetOfExperts) {
  if (GetParam().arch != "nomic-bert-moe") GTEST_SKIP() << "has no experts";
  const std::string path = WriteModel();
  EngineOptions poor = ForEmbeddings();
  poor.takes_smallest = true;
  const auto plan = PlanEngine(path, poor, ModelToLoad::Use::kAny);
  ASSERT_TRUE(plan) << plan.error().message;
  poor.takes_smallest = false;
  poor.ram_bytes = plan->smallest;
  const auto streaming = OpenEmbedding(path, poor);
  ASSERT_TRUE(streaming) << streaming.error().message;
  const auto rich = OpenEmbedding(path, ForEmbeddings());
  ASSERT_TRUE(rich) << rich.error().message;
  const std::vector<std::vector<Token>> texts = {EmbeddedText(60, 1), EmbeddedText(60, 2)};
  const auto some = EmbedAll(**streaming, texts);
  const auto all = EmbedAll(**rich, texts);
  ASSERT_TRUE(some && all);
  EXPECT_EQ(*some, *all);
  EXPECT_GT((*streaming)->stats().prefill.misses, 0U);
}

INSTANTIATE_TEST_SUITE_P(
    , HostedEmbeddingsTest,
    ::testing::Values(EmbeddingKind{"bert", kByMean}, EmbeddingKind{"bert", kByCls},
                      EmbeddingKind{"nomic-bert", kByMean},
                      EmbeddingKind{"nomic-bert-moe", kByMean},
                      EmbeddingKind{"gemma-embedding", kByMean},
                      EmbeddingKind{"qwen3", kByLast, true}, EmbeddingKind{"llama", kByMean, true},
                      EmbeddingKind{"qwen3moe", kByLast, true}),
    [](const auto& about) { return ZooCaseName(about.param.arch, int64_t{about.param.pooling}); });

// Its last token has seen all others in whatever pieces they came.
TEST(HostedEmbeddingsInPieces, AreThoseOfTheWholeText) {
  const TempFolder folder;
  const std::string path =
      WriteZooModel(folder.path(), "qwen3", {.context = kTextRows, .pooling = kByLast});
  EngineOptions options = ForEmbeddings();
  options.chunk = 24;
  const auto engine = OpenEmbedding(path, options);
  ASSERT_TRUE(engine) << engine.error().message;
  ASSERT_EQ((*engine)->chunk(), 24U);
  const std::vector<std::vector<Token>> texts = {EmbeddedText(100, 1), EmbeddedText(24, 2),
                                                 EmbeddedText(25, 3)};
  const auto got = EmbedAll(**engine, texts);
  ASSERT_TRUE(got) << got.error().message;
  PlainEmbedder plain(path);
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_LT(Difference(Normalised((*got)[i]), Normalised(plain.Embed(texts[i]))), 1e-5) << i;
  }
}

// Special tokens and all: a text for BERT ends with a separator.
TEST(HostedEmbeddingsTexts, HaveLibllamasTokens) {
  const TempFolder folder;
  const std::string path = (folder.path() / "vocabulary").string();
  GgufBuilder file = SmallMoe("llama");
  AddBertVocabulary(file);
  file.Write(path);
  const auto vocab = Vocab::Load(path);
  ASSERT_TRUE(vocab) << vocab.error().message;
  for (const std::string text : {"", "hello", "Hello,  ab zz.\n\xC3\xB6 \xE2\x82\xAC", "[SEP]"}) {
    std::vector<Token> theirs(64);
    const int32_t n = llama_tokenize(vocab->raw(), text.data(), static_cast<int32_t>(text.size()),
                                     theirs.data(), 64, true, false);
    ASSERT_GE(n, 2);
    theirs.resize(static_cast<size_t>(n));
    EXPECT_EQ(*vocab->Tokenize(text, true, false), theirs) << text;
  }
}

TEST(HostedEmbeddingsRefuse, WhatHasNoEmbedding) {
  const TempFolder folder;
  const std::string path = WriteZooModel(
      folder.path(), "bert", {.context = kTextRows, .is_causal = false, .pooling = kByMean});
  const auto engine = OpenEmbedding(path, ForEmbeddings());
  ASSERT_TRUE(engine) << engine.error().message;
  const auto refusal = [&](std::vector<Token> text) {
    const auto got = EmbedAll(**engine, {std::move(text)});
    return got ? std::string() : got.error().message;
  };
  EXPECT_TRUE(refusal({}).contains("without tokens"));
  EXPECT_TRUE(refusal(EmbeddedText(kTextRows + 1, 1)).contains("257 tokens do not fit"));
  EXPECT_TRUE(refusal({3, 256}).contains("token 256 is outside"));
  EXPECT_EQ(refusal({3, 255}), "");  // the engine goes on
}

TEST(HostedEmbeddingsRefuse, ModelsThatNameNoPooling) {
  const TempFolder folder;
  const std::string path = WriteZooModel(folder.path(), "qwen3");
  auto file = GgufFile::Open(path);
  ASSERT_TRUE(file);
  const auto refused =
      HostedEngine::Open(*std::move(file), ForEmbeddings(), {}, HostedUse::kEmbeddings);
  ASSERT_FALSE(refused);
  EXPECT_TRUE(refused.error().message.contains("names no pooling"));
  const auto writes = OpenEmbedding(path, ForEmbeddings());  // the model's one use
  ASSERT_TRUE(writes) << writes.error().message;
  EXPECT_EQ(FindEmbedder(**writes), nullptr);
}

// libllama would end the process.
TEST(HostedEmbeddingsRefuse, ModelsWithoutAWholeLayer) {
  const TempFolder folder;
  for (const int32_t every : {0, 6, 1000}) {
    const std::string path =
        WriteZooModel(folder.path(), "gemma-embedding",
                      {.context = kTextRows, .pooling = kByMean, .whole_every = every});
    const auto engine = OpenEmbedding(path, ForEmbeddings());
    ASSERT_FALSE(engine) << every;
    EXPECT_EQ(engine.error().code, Errc::kUnsupported) << engine.error().message;
    EXPECT_TRUE(engine.error().message.contains("have windows")) << engine.error().message;
  }
}

TEST(HostedEmbeddingsRefuse, ToWriteText) {
  const TempFolder folder;
  const std::string path = WriteZooModel(
      folder.path(), "bert", {.context = kTextRows, .is_causal = false, .pooling = kByMean});
  const auto refused = OpenEngine(path, ForEmbeddings());
  ASSERT_FALSE(refused);
  EXPECT_TRUE(refused.error().message.contains("'moestro serve' gives its embeddings"));
  const auto native = ModelToLoad::Open(path, "native", ModelToLoad::Use::kAny);
  ASSERT_FALSE(native);
  EXPECT_TRUE(native.error().message.contains("only the hosted engine"));
}

TEST(HostedEmbeddingsPeak, IsPlanned) {
  const TempFolder folder;
  const std::string path = WriteZooModel(folder.path(), "bert",
                                         {.context = 2048, .is_causal = false, .pooling = kByMean});
  EngineOptions options = ForEmbeddings();
  options.ctx = 2048;
  const uint64_t before = ResidentMemory();
  const auto engine = OpenEmbedding(path, options);
  ASSERT_TRUE(engine) << engine.error().message;
  ASSERT_TRUE(EmbedAll(**engine, {EmbeddedText(2048, 1)}));
  const MemoryPlan& plan = (*engine)->facts().memory;
  EXPECT_GE(plan.work + plan.kv + plan.dense + plan.slots, ResidentMemory() - before);
}

}  // namespace
}  // namespace moestro
