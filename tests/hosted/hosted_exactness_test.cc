// SPDX-License-Identifier: MIT
// libllama on our residency computes the bits of plain libllama on the same rows, whatever the
// budget. Bytes of experts that are not there are 0xFF, so that each use of one shows.
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/append.h"
#include "hosted/hosted_engine.h"
#include "load/open_engine.h"
#include "tests/hosted/plain_llama_testing.h"
#include "tests/support/llama_zoo_testing.h"
#include "tests/support/poisoning_reader_testing.h"
#include "tests/support/product_testing.h"
#include "tests/support/temp_folder_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro {
namespace {

constexpr uint32_t kExactContext = 256;

std::vector<Token> ExactTokens(size_t n, uint32_t seed) {
  std::vector<Token> tokens;
  for (size_t i = 0; i < n; ++i) tokens.push_back(static_cast<Token>((i * 37 + seed * 11) % 256));
  return tokens;
}

EngineOptions Budget(double percent, const std::string& reader = "auto") {
  EngineOptions options;
  options.cache = CacheSize{.percent = percent};
  options.threads = 1;
  options.ctx = kExactContext;
  options.reader = reader;
  options.repack = false;  // libllama's own products
  options.wrap_reader = PoisoningReader::Wrap;
  return options;
}

// Reads the prompt and then several tokens one by one, twice over the same experts.
std::vector<float> Logits(Engine& engine, std::span<const Token> prompt,
                          std::span<const Token> text) {
  Sequence sequence = engine.NewSequence();
  auto all = AppendAll(engine, sequence, prompt);
  EXPECT_TRUE(all) << all.error().message;
  if (!all) return {};
  for (const Token token : text) {
    const auto row = Append(engine, sequence, {&token, 1});
    EXPECT_TRUE(row) << row.error().message;
    if (!row) return {};
    all->insert(all->end(), row->begin(), row->end());
  }
  return *all;
}

std::vector<float> PlainLogits(const std::string& path, uint32_t threads,
                               std::span<const Token> prompt, std::span<const Token> text) {
  PlainLlama plain(path, kExactContext, threads);
  std::vector<float> all = plain.Append(prompt);
  for (const Token token : text) {
    const std::vector<float> row = plain.Append({&token, 1});
    all.insert(all.end(), row.begin(), row.end());
  }
  return all;
}

std::unique_ptr<HostedEngine> Open(const std::string& path, const EngineOptions& options) {
  auto file = GgufFile::Open(path);
  EXPECT_TRUE(file) << file.error().message;
  if (!file) return nullptr;
  auto engine = HostedEngine::Open(*std::move(file), options);
  EXPECT_TRUE(engine) << engine.error().message;
  return engine ? *std::move(engine) : nullptr;
}

class HostedExactness : public testing::TestWithParam<std::string> {
 protected:
  TempFolder folder_;
};

TEST_P(HostedExactness, LogitsArePlainLibllamasInEveryBudget) {
  const std::string path = WriteZooModel(folder_.path(), GetParam());
  const std::vector<Token> text = ExactTokens(12, 3);
  for (const double percent : {100.0, 60.0, 26.0}) {
    const auto engine = Open(path, Budget(percent));
    ASSERT_NE(engine, nullptr);
    // A prompt that goes through the layers at once in every budget.
    const std::vector<Token> prompt = ExactTokens(engine->chunk() > 1 ? 2 : 1, 1);
    const auto expected = PlainLogits(path, 1, prompt, text);
    EXPECT_EQ(Logits(*engine, prompt, text), expected) << percent;
    EXPECT_EQ(Logits(*engine, prompt, text), expected) << percent << ", once more";
    if (percent < 30.0) {
      EXPECT_GT(engine->stats().decode.evictions, 0U);
    }
  }
}

// The cover has each kind of memory.
std::vector<std::string> ZooOfPart(uint32_t part) {
  return CellsOfPart(part, ZooArchs(),
                     [](const std::string& arch) { return Keys{ZooMemory(arch)}; });
}

MOESTRO_INSTANTIATE_PARTS(HostedExactness, ZooOfPart,
                          [](const auto& arch) { return CaseName(arch.param); });

// libllama would end the process: it wants some groups to be left out.
TEST(HostedModelFile, GroupsThatLibllamaAbortsOnAreAnError) {
  const TempFolder folder;
  // Both groups are used.
  const std::string model = WriteTinyModel(folder.path(), {.arch = "bailingmoe2", .groups = 2});
  EngineOptions options{.threads = 1, .ctx = 64};
  options.engine = "native";
  EXPECT_TRUE(OpenEngine(model, options));
  options.engine = "hosted";
  const auto hosted = OpenEngine(model, options);
  ASSERT_FALSE(hosted);
  EXPECT_EQ(hosted.error().code, Errc::kInvalidFile);
  EXPECT_TRUE(hosted.error().message.contains("8 experts in 2 groups, 2 of them used"))
      << hosted.error().message;
}

// libllama would end the process.
TEST(HostedModelFile, RoutersThatLibllamaDoesNotKnowAreAnError) {
  const TempFolder folder;
  const std::string model = WriteTinyModel(folder.path(), {.arch = "minimax-m2"});
  std::fstream file(model, std::ios::in | std::ios::out | std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  constexpr std::string_view kKey = "minimax-m2.expert_gating_func";
  const size_t key = bytes.find(kKey);
  ASSERT_NE(key, std::string::npos);
  for (const char value : {'\0', '\x05', '\x7F'}) {
    file.seekp(static_cast<std::streamoff>(key + kKey.size() + sizeof(uint32_t)));
    file.put(value).flush();
    EngineOptions options{.threads = 1, .ctx = 64};
    options.engine = "hosted";
    const auto opened = OpenEngine(model, options);
    ASSERT_FALSE(opened);
    EXPECT_TRUE(opened.error().message.contains(kKey)) << opened.error().message;
  }
}

TEST(HostedModelFile, MoreNextTokenLayersThanLayersAreAnError) {
  const TempFolder folder;
  const std::string model = WriteZooModel(folder.path(), "glm4moe");
  std::fstream file(model, std::ios::in | std::ios::out | std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  constexpr std::string_view kKey = "glm4moe.nextn_predict_layers";
  const size_t key = bytes.find(kKey);
  ASSERT_NE(key, std::string::npos);
  for (const char value : {'\x01', '\x04', '\x7F'}) {
    file.seekp(static_cast<std::streamoff>(key + kKey.size() + sizeof(uint32_t)));
    file.put(value).flush();
    EngineOptions options{.threads = 1, .ctx = 64};
    options.engine = "hosted";
    const auto opened = OpenEngine(model, options);
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().code, Errc::kInvalidFile);
    EXPECT_TRUE(opened.error().message.contains("nextn")) << opened.error().message;
  }
}

// A convolution over five positions is none of our kernels' and no fault of the file.
TEST(HostedModelFile, WhatTheNativeEngineRefusesIsHosted) {
  const TempFolder folder;
  const std::string model = WriteZooModel(folder.path(), "lfm2moe", {.taps = 5});
  EngineOptions options{.threads = 1, .ctx = 64};
  const auto hosted = OpenEngine(model, options);
  ASSERT_TRUE(hosted) << hosted.error().message;
  EXPECT_TRUE(PlanEngine(model, options));
  options.engine = "native";
  const auto native = OpenEngine(model, options);
  ASSERT_FALSE(native);
  EXPECT_TRUE(native.error().message.contains("shortconv.l_cache is 5")) << native.error().message;
}

TEST(HostedModelFile, WhatNeitherTakesHasBothReasons) {
  const TempFolder folder;
  const std::string model = WriteZooModel(folder.path(), "lfm2moe", {.taps = 5});
  {  // Its last layer's norm gets a name that nobody knows.
    std::fstream file(model, std::ios::in | std::ios::out | std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), {});
    const size_t name = bytes.find("blk.3.attn_norm.weight");
    ASSERT_NE(name, std::string::npos);
    file.seekp(static_cast<std::streamoff>(name));
    file << "blk.3.attn_mess.weight";
  }
  const EngineOptions options{.threads = 1, .ctx = 64};
  const auto opened = OpenEngine(model, options);
  ASSERT_FALSE(opened);
  const auto planned = PlanEngine(model, options);
  ASSERT_FALSE(planned);
  for (const std::string& message : {opened.error().message, planned.error().message}) {
    EXPECT_TRUE(message.contains("libllama cannot read")) << message;
    EXPECT_TRUE(message.contains("shortconv.l_cache is 5")) << message;
  }
}

}  // namespace
}  // namespace moestro
