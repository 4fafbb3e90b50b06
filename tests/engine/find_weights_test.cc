// SPDX-License-Identifier: MIT
// The weights' number: what changes it and what does not, read in two ways.
#include "native/find_weights.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "model/weights_id.h"
#include "native/native_engine.h"
#include "tests/support/other_weights_testing.h"
#include "tests/support/temp_folder_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro {
namespace {

uint64_t IdOf(const std::string& path) {
  const auto model = ModelFile::Open(path);
  EXPECT_TRUE(model) << model.error().message;
  const auto id = FindWeightsId(*model, "");
  EXPECT_TRUE(id) << id.error().message;
  return id.value_or(0);
}

EngineOptions Options() {
  EngineOptions options;
  options.threads = 2;
  options.ctx = 64;
  options.cache = CacheSize{.percent = 50.0};
  options.device.name = "cpu";
  return options;
}

// While it is loaded, whatever the layout of the weights.
uint64_t IdByLoading(const std::string& path, const EngineOptions& options = Options()) {
  const auto engine = NativeEngine::Open(path, options);
  EXPECT_TRUE(engine) << engine.error().message;
  const auto origin = (*engine)->kv_origin();
  EXPECT_TRUE(origin) << origin.error().message;
  return origin ? origin->weights : 0;
}

TEST(FindWeights, EveryFamilyIsReadAndLoadedToTheSameNumber) {
  const TempFolder folder;
  std::set<uint64_t> seen;
  for (const std::string& arch : TinyArchs()) {
    const std::string path = WriteTinyModel(folder.path(), {.arch = arch, .type = "Q4_K_M"});
    const uint64_t id = IdOf(path);
    EXPECT_EQ(IdByLoading(path), id) << arch;
    EngineOptions plain = Options();
    plain.repack = false;
    plain.threads = 1;
    plain.reader = "pread";
    EXPECT_EQ(IdByLoading(path, plain), id) << arch;
    EXPECT_TRUE(seen.insert(id).second) << arch;
  }
}

TEST(FindWeights, ATensorOfManyBlocksIsReadAndLoadedToTheSameNumber) {
  const TempFolder folder;
  // 9.6 MB of embeddings: pieces of 4 MiB, blocks of 1 MiB.
  const std::string path = WriteTinyModel(folder.path(), {.type = "F32", .vocab = 9400});
  EXPECT_EQ(IdByLoading(path), IdOf(path));
  const std::string tied = WriteTinyModel(
      folder.path(), {.arch = "llama", .type = "F32", .vocab = 9400, .is_tied = true});
  EXPECT_EQ(IdByLoading(tied), IdOf(tied));
}

TEST(FindWeights, ASplitCopyHasTheSameNumber) {
  const TempFolder whole;
  const TempFolder split;
  const std::string one = WriteTinyModel(whole.path(), {.layers = 3});
  const std::string three = WriteTinyModel(split.path(), {.layers = 3, .shards = 3});
  ASSERT_EQ(ModelFile::Open(one)->id.fingerprint, ModelFile::Open(three)->id.fingerprint);
  EXPECT_EQ(IdOf(three), IdOf(one));
  EXPECT_EQ(IdByLoading(three), IdOf(one));
}

TEST(FindWeights, EveryTensorCounts) {
  const TempFolder folder;
  const std::string path = WriteTinyModel(folder.path(), {.arch = "qwen2moe"});
  const std::string other = folder.File("other.gguf");
  std::set<uint64_t> seen{IdOf(path)};
  const auto model = ModelFile::Open(path);
  for (const TensorInfo& tensor : model->gguf.tensors()) {
    WriteOtherWeights(path, other, [&](std::string_view name) { return name == tensor.name; });
    EXPECT_TRUE(seen.insert(IdOf(other)).second) << tensor.name;
  }
}

TEST(FindWeights, ABitOfADenseTensorCounts) {
  const TempFolder folder;
  const std::string path = WriteTinyModel(folder.path(), {});
  const uint64_t before = IdOf(path);
  const TensorInfo norm = *ModelFile::Open(path)->gguf.Find("output_norm.weight");
  std::fstream bytes(path, std::ios::in | std::ios::out | std::ios::binary);
  bytes.seekg(static_cast<std::streamoff>(norm.extent.offset + norm.extent.length - 4));
  const int last = bytes.get();
  bytes.seekp(static_cast<std::streamoff>(norm.extent.offset + norm.extent.length - 4));
  bytes.put(static_cast<char>(last ^ 1));
  bytes.close();
  EXPECT_NE(IdOf(path), before);
}

TEST(FindWeights, ALargeModelGivesABoundedSampleOfEveryTensor) {
  const TempFolder folder;
  const auto model = ModelFile::Open(
      WriteTinyModel(folder.path(), {.layers = 30, .experts = 64, .embd = 256, .ff = 64}));
  ASSERT_TRUE(model) << model.error().message;
  const auto blocks = ExpertBlocks(model->weights);
  EXPECT_EQ(blocks.size(), kMostSamples);  // of 5760
  std::set<uint64_t> places;
  for (const WeightBlock& block : blocks) {
    EXPECT_EQ(block.from.length, kSampleBytes);
    EXPECT_TRUE(places.insert(block.from.offset).second);
  }
  for (const TensorInfo& tensor : model->gguf.tensors()) {
    if (!tensor.name.contains("_exps")) continue;
    const auto first = places.lower_bound(tensor.extent.offset);
    ASSERT_NE(first, places.end()) << tensor.name;
    EXPECT_LT(*first, tensor.extent.offset + tensor.extent.length) << tensor.name;
  }
}

class FindWeightsKept : public ::testing::Test {
 protected:
  FindWeightsKept() : path_(WriteTinyModel(folder_.path(), {.shards = 2, .seed = 5})) { Age(); }
  void Age() const {
    const auto old = std::filesystem::file_time_type::clock::now() - std::chrono::hours(1);
    const auto model = ModelFile::Open(path_);
    for (const std::string& part : model->gguf.paths()) std::filesystem::last_write_time(part, old);
  }
  TempFolder folder_;
  std::string path_;
  std::string cache_ = folder_.File("cache");
};

TEST_F(FindWeightsKept, IsRememberedFromStartToStart) {
  const uint64_t id = IdOf(path_);
  EXPECT_EQ(KnownWeightsId(*ModelFile::Open(path_), cache_), std::nullopt);
  EngineOptions options = Options();
  options.weights_folder = cache_;
  EXPECT_EQ(IdByLoading(path_, options), id);
  EXPECT_EQ(KnownWeightsId(*ModelFile::Open(path_), cache_), id);
  EXPECT_EQ(IdByLoading(path_, options), id);
}

TEST_F(FindWeightsKept, AnyPartThatHasChangedIsReadAgain) {
  ASSERT_TRUE(FindWeightsId(*ModelFile::Open(path_), cache_));
  const auto parts = ModelFile::Open(path_)->gguf.paths();
  ASSERT_EQ(parts.size(), 2U);
  ASSERT_TRUE(KnownWeightsId(*ModelFile::Open(path_), cache_));
  const auto time = std::filesystem::last_write_time(parts[1]);
  std::filesystem::last_write_time(parts[1], time - std::chrono::seconds(1));
  EXPECT_FALSE(KnownWeightsId(*ModelFile::Open(path_), cache_));
}

// The file under the name is no longer the one whose header was read.
TEST_F(FindWeightsKept, AFileThatIsReplacedMeanwhileIsAnError) {
  const TempFolder other;
  const auto model = ModelFile::Open(path_);
  const std::string newer = WriteTinyModel(other.path(), {.shards = 2, .seed = 5});
  std::filesystem::copy_file(newer, folder_.File("new"));
  std::filesystem::rename(folder_.File("new"), path_);
  const auto id = FindWeightsId(*model, cache_);
  ASSERT_FALSE(id);
  EXPECT_EQ(id.error().code, Errc::kInvalidFile);
  EXPECT_TRUE(id.error().message.contains("changed")) << id.error().message;
}

// NativeEngine::Plan() reads no weight, and neither does what asks for none.
TEST_F(FindWeightsKept, APlanRemembersNothing) {
  EngineOptions options = Options();
  options.weights_folder = cache_;
  ASSERT_TRUE(NativeEngine::Plan(path_, options));
  EXPECT_FALSE(std::filesystem::exists(cache_));
}

}  // namespace
}  // namespace moestro
