// SPDX-License-Identifier: MIT
#include "offline/synth/synth.h"

#include <ggml-cpp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/number.h"
#include "model/expert_tensors.h"
#include "model/gguf_file.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

SynthOptions Small(const std::string& path) {
  SynthOptions options;
  options.shape = FindShape("qwen3-30b-a3b").value();
  options.shape.layers = 2;
  options.shape.experts = 8;
  options.shape.used = 2;
  options.shape.embd = 256;
  options.shape.ff = 96;
  options.shape.heads = 4;
  options.shape.kv_heads = 2;
  options.shape.head_dim = 64;
  options.shape.vocab = 300;
  options.path = path;
  return options;
}

gguf_context_ptr Open(const std::string& path) {
  return gguf_context_ptr{gguf_init_from_file(path.c_str(), {.no_alloc = true, .ctx = nullptr})};
}

uint32_t U32(const gguf_context_ptr& gguf, const char* key) {
  const int64_t id = gguf_find_key(gguf.get(), key);
  return id < 0 ? UINT32_MAX : gguf_get_val_u32(gguf.get(), id);
}

TEST(Synth, TheSameSeedGivesTheSameBytes) {
  const TempFolder folder;
  SynthOptions options = Small(folder.File("a.gguf"));
  ASSERT_TRUE(WriteSynthetic(options).has_value());
  options.path = folder.File("b.gguf");
  ASSERT_TRUE(WriteSynthetic(options).has_value());
  options.path = folder.File("c.gguf");
  options.seed = 2;
  ASSERT_TRUE(WriteSynthetic(options).has_value());
  EXPECT_EQ(ReadAll(folder.File("a.gguf")), ReadAll(folder.File("b.gguf")));
  EXPECT_NE(ReadAll(folder.File("a.gguf")), ReadAll(folder.File("c.gguf")));
}

TEST(Synth, ThePlanTellsTheSizeOfTheFile) {
  const TempFolder folder;
  for (const uint64_t random_throughout : {kRandomThroughout, uint64_t{0}}) {
    SynthOptions options = Small(folder.File("a.gguf"));
    options.overwrite = true;
    options.random_throughout = random_throughout;
    const SynthReport planned = PlanSynthetic(options).value();
    uint64_t last_done = 0;
    uint64_t last_all = 0;
    options.progress = [&](uint64_t done, uint64_t all) {
      EXPECT_GE(done, last_done);
      last_done = done;
      last_all = all;
    };
    const Result<SynthReport> written = WriteSynthetic(options);
    ASSERT_TRUE(written.has_value()) << written.error().message;
    EXPECT_EQ(std::filesystem::file_size(options.path.text()), planned.bytes);
    EXPECT_EQ(written->bytes, planned.bytes);
    EXPECT_EQ(last_done, planned.bytes);
    EXPECT_EQ(last_all, planned.bytes);
  }
}

TEST(Synth, TheFileSaysThatItIsSynthetic) {
  const TempFolder folder;
  ASSERT_TRUE(WriteSynthetic(Small(folder.File("a.gguf"))).has_value());
  const gguf_context_ptr gguf = Open(folder.File("a.gguf"));
  ASSERT_TRUE(gguf);
  const int64_t flag = gguf_find_key(gguf.get(), "moestro.synthetic");
  ASSERT_GE(flag, 0);
  EXPECT_TRUE(gguf_get_val_bool(gguf.get(), flag));
  const int64_t name = gguf_find_key(gguf.get(), "general.name");
  ASSERT_GE(name, 0);
  EXPECT_NE(std::string(gguf_get_val_str(gguf.get(), name)).find("synthetic"), std::string::npos);
}

// The same but for experts, which take no room.
TEST(Synth, ExpertsOfASparseFileAreHoles) {
  const TempFolder folder;
  SynthOptions options = Small(folder.File("whole.gguf"));
  ASSERT_TRUE(WriteSynthetic(options).has_value());
  options.path = folder.File("sparse.gguf");
  options.is_sparse = true;
  const auto written = WriteSynthetic(options);
  ASSERT_TRUE(written) << written.error().message;
  EXPECT_EQ(std::filesystem::file_size(options.path.text()), written->bytes);
  struct stat on_disk = {};
  ASSERT_EQ(stat(options.path.text().c_str(), &on_disk), 0);
  EXPECT_LE(static_cast<uint64_t>(on_disk.st_blocks) * 512,
            written->bytes - written->expert_bytes + (uint64_t{1} << 20));
  const auto sparse = GgufFile::Open(options.path.text());
  const auto whole = GgufFile::Open(folder.File("whole.gguf"));
  ASSERT_TRUE(sparse && whole);
  EXPECT_EQ(*sparse->FindBool(kSparseKey), std::optional(true));
  EXPECT_EQ(*whole->FindBool(kSparseKey), std::nullopt);
  const std::string of_sparse = ReadAll(options.path.text());
  const std::string of_whole = ReadAll(folder.File("whole.gguf"));
  for (const TensorInfo& tensor : sparse->tensors()) {
    const auto bytes =
        std::string_view(of_sparse).substr(tensor.extent.offset, tensor.extent.length);
    if (tensor.name.ends_with("_exps.weight")) {
      EXPECT_EQ(bytes.find_first_not_of('\0'), std::string_view::npos) << tensor.name;
    } else {
      const TensorInfo* other = whole->Find(tensor.name);
      EXPECT_EQ(bytes,
                std::string_view(of_whole).substr(other->extent.offset, other->extent.length))
          << tensor.name;
    }
  }
}

TEST(Synth, KnownShapesHaveTheSizesOfTheRealModels) {
  for (const SynthShape& shape : KnownShapes()) {
    SynthOptions options;
    options.shape = shape;
    options.path = "unused.gguf";
    const Result<SynthReport> report = PlanSynthetic(options);
    ASSERT_TRUE(report.has_value()) << report.error().message;
    EXPECT_NEAR(static_cast<double>(report->weights) / 1e9, shape.billions, shape.billions * 0.005)
        << shape.name;
  }
}

TEST(Synth, ShardsHoldTheSameTensorsAsOneFile) {
  const TempFolder folder;
  SynthOptions options = Small(folder.File("m.gguf"));
  ASSERT_TRUE(WriteSynthetic(options).has_value());
  options.shards = 3;
  const Result<SynthReport> split = WriteSynthetic(options);
  ASSERT_TRUE(split.has_value()) << split.error().message;
  ASSERT_EQ(split->paths.size(), 3U);
  EXPECT_EQ(split->paths[1], folder.File("m-00002-of-00003.gguf"));
  const gguf_context_ptr whole = Open(options.path.text());
  const std::string whole_bytes = ReadAll(options.path.text());
  int64_t tensors = 0;
  for (const std::string& path : split->paths) {
    const gguf_context_ptr part = Open(path);
    ASSERT_TRUE(part);
    const std::string bytes = ReadAll(path);
    for (int64_t i = 0; i < gguf_get_n_tensors(part.get()); ++i, ++tensors) {
      const int64_t j = gguf_find_tensor(whole.get(), gguf_get_tensor_name(part.get(), i));
      ASSERT_GE(j, 0);
      const size_t size = gguf_get_tensor_size(part.get(), i);
      const size_t here = gguf_get_data_offset(part.get()) + gguf_get_tensor_offset(part.get(), i);
      const size_t there =
          gguf_get_data_offset(whole.get()) + gguf_get_tensor_offset(whole.get(), j);
      EXPECT_EQ(bytes.substr(here, size), whole_bytes.substr(there, size));
    }
  }
  EXPECT_EQ(tensors, gguf_get_n_tensors(whole.get()));
}

TEST(Synth, EvenOneTensorPerShardWorks) {
  const TempFolder folder;
  SynthOptions options = Small(folder.File("m.gguf"));
  options.shape.layers = 1;
  options.shards = 15;
  const Result<SynthReport> split = WriteSynthetic(options);
  ASSERT_TRUE(split.has_value()) << split.error().message;
  for (const std::string& path : split->paths) EXPECT_EQ(gguf_get_n_tensors(Open(path).get()), 1);
  options.shards = 16;
  EXPECT_EQ(WriteSynthetic(options).error().code, Errc::kInvalidRequest);
}

TEST(Synth, AVocabularyIsCopiedAndSetsTheSize) {
  const TempFolder folder;
  const std::vector<const char*> words = {"<s>", "a", "b", "ab", "c"};
  {
    const gguf_context_ptr vocab{gguf_init_empty()};
    gguf_set_val_str(vocab.get(), "general.name", "words");
    gguf_set_val_str(vocab.get(), "tokenizer.ggml.model", "gpt2");
    std::vector<const char*> list = words;
    gguf_set_arr_str(vocab.get(), "tokenizer.ggml.tokens", list.data(), list.size());
    gguf_set_val_u32(vocab.get(), "tokenizer.ggml.bos_token_id", 0);
    ASSERT_TRUE(gguf_write_to_file(vocab.get(), folder.File("v.gguf").c_str(), true));
  }
  SynthOptions options = Small(folder.File("m.gguf"));
  options.vocab_path = folder.File("v.gguf");
  const Result<SynthReport> report = WriteSynthetic(options);
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_EQ(report->vocab, words.size());
  const gguf_context_ptr model = Open(options.path.text());
  const int64_t tokens = gguf_find_key(model.get(), "tokenizer.ggml.tokens");
  ASSERT_GE(tokens, 0);
  EXPECT_STREQ(gguf_get_arr_str(model.get(), tokens, 3), "ab");
  EXPECT_EQ(U32(model, "qwen3moe.vocab_size"), words.size());
  EXPECT_EQ(U32(model, "tokenizer.ggml.bos_token_id"), 0U);
  const int64_t embd = gguf_find_tensor(model.get(), "token_embd.weight");
  EXPECT_EQ(gguf_get_tensor_ne(model.get(), embd)[1], static_cast<int64_t>(words.size()));
}

TEST(Synth, BadVocabulariesAreErrors) {
  const TempFolder folder;
  SynthOptions options = Small(folder.File("m.gguf"));
  options.vocab_path = folder.File("missing.gguf");
  EXPECT_EQ(WriteSynthetic(options).error().code, Errc::kIo);
  std::ofstream(folder.File("text.gguf")) << "not a model";
  options.vocab_path = folder.File("text.gguf");
  EXPECT_EQ(WriteSynthetic(options).error().code, Errc::kInvalidFile);
  EXPECT_FALSE(std::filesystem::exists(options.path.text()));
}

TEST(Synth, AnExistingFileIsLeftAloneUnlessAllowed) {
  const TempFolder folder;
  SynthOptions options = Small(folder.File("m.gguf"));
  std::ofstream(options.path.text()) << "precious";
  const Result<SynthReport> refused = WriteSynthetic(options);
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("exists"), std::string::npos);
  EXPECT_EQ(ReadAll(options.path.text()), "precious");
  options.overwrite = true;
  EXPECT_TRUE(WriteSynthetic(options).has_value());
  EXPECT_TRUE(Open(options.path.text()));
}

TEST(Synth, AFailingDiskLeavesNothingBehind) {
  const TempFolder folder;
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit limit = {256 * kKiB, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &limit);
  for (const uint32_t shards : {1U, 3U}) {
    SynthOptions options = Small(folder.File("m.gguf"));
    options.shards = shards;
    const Result<SynthReport> failed = WriteSynthetic(options);
    EXPECT_EQ(failed ? "written" : failed.error().message.substr(0, 12), "cannot write");
    EXPECT_TRUE(folder.is_empty());
  }
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
}

TEST(Synth, TooLittleSpaceIsSaidBeforeTheWorkStarts) {
  const TempFolder folder;
  SynthOptions options = Small(folder.File("m.gguf"));
  options.shape = FindShape("mixtral-8x7b").value();
  options.shape.layers = 512;
  options.shape.experts = 512;
  options.type = "F32";  // 184 TiB
  const Result<SynthReport> failed = WriteSynthetic(options);
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code, Errc::kIo);
  EXPECT_NE(failed.error().message.find("free"), std::string::npos) << failed.error().message;
  EXPECT_TRUE(folder.is_empty());
}

TEST(Synth, ImpossibleOptionsAreNamed) {
  const auto message = [](auto change) {
    SynthOptions options = Small("unused.gguf");
    change(options);
    const Result<SynthReport> report = PlanSynthetic(options);
    return report ? std::string("accepted") : report.error().message;
  };
  const auto says = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_PRED2(says, message([](SynthOptions& o) { o.type = "Q7"; }), "Q4_K_M");
  EXPECT_PRED2(says, message([](SynthOptions& o) { o.shape.layers = 0; }), "layers");
  EXPECT_PRED2(says, message([](SynthOptions& o) { o.shape.used = 9; }), "used experts");
  EXPECT_PRED2(says, message([](SynthOptions& o) { o.shape.kv_heads = 3; }), "kv heads");
  EXPECT_PRED2(says, message([](SynthOptions& o) { o.shape.head_dim = 63; }), "odd");
  EXPECT_PRED2(says, message([](SynthOptions& o) { o.shape.shared_ff = 64; }), "shared");
  EXPECT_PRED2(says, message([](SynthOptions& o) { o.shape.dense_layers = 1; }), "without experts");
  EXPECT_PRED2(says, message([](SynthOptions& o) { o.shape.arch = "olmoe"; }), "olmoe");
  EXPECT_PRED2(says, message([](SynthOptions& o) { o.shape.arch = "mamba"; }),
               "known are llama, qwen2moe");
  EXPECT_PRED2(says, message([](SynthOptions& o) {
                 o.shape.arch = "phimoe";
                 o.shape.heads = 8;
               }),
               "embedding width 256");
  EXPECT_PRED2(says, message([](SynthOptions& o) { o.skew = -1; }), "skew");
  EXPECT_PRED2(says, message([](SynthOptions& o) {
                 o.skew = 1;
                 o.shape.used = 4;
               }),
               "half");
  EXPECT_PRED2(says, message([](SynthOptions& o) {
                 o.is_tied = true;
                 o.shape.arch = "phimoe";
               }),
               "output matrix");
  EXPECT_PRED2(says, message([](SynthOptions& o) { o.shards = 0; }), "shards");
  EXPECT_PRED2(says, message([](SynthOptions& o) { o.path = OutputPath(); }), "output file");
}

TEST(WithLayers, LimitsOfLayersThatAreCutOffGo) {
  const SynthShape whole = FindShape("ling-3.0-flash").value();
  ASSERT_GT(whole.limited_from, 0U);
  const SynthShape few = WithLayers(whole, 7);
  EXPECT_EQ(few.layers, 7U);
  EXPECT_TRUE(CheckShape(few)) << CheckShape(few).error().message;
  const SynthShape most = WithLayers(whole, whole.limited_from + 1);
  EXPECT_EQ(most.limit_expert, whole.limit_expert);
  EXPECT_TRUE(CheckShape(most)) << CheckShape(most).error().message;
}

}  // namespace
}  // namespace moestro
