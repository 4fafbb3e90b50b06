// SPDX-License-Identifier: MIT
// The routers of later layers on an earlier layer's input: the hosted engine predicts what the
// native one does.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engine/append.h"
#include "load/open_engine.h"
#include "tests/support/llama_zoo_testing.h"
#include "tests/support/prompts_testing.h"
#include "tests/support/temp_folder_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro {
namespace {

EngineOptions Options(const std::string& engine, uint32_t look_ahead) {
  EngineOptions options;
  options.engine = engine;
  options.cache = CacheSize{.percent = 50.0};
  options.threads = 1;
  options.ctx = 256;  // beyond phimoe's shorter context, so that both take its long rope factors
  options.prefetch = look_ahead;
  options.kv_type = KvType::kF32;
  return options;
}

// Of each layer, distance and token, the experts that are predicted.
std::vector<std::vector<ExpertId>> Predictions(const std::string& path, const std::string& engine) {
  const auto opened = OpenEngine(path, Options(engine, 2));
  EXPECT_TRUE(opened) << opened.error().message;
  std::vector<std::vector<ExpertId>> predictions;
  if (!opened) return predictions;
  EXPECT_EQ((*opened)->facts().max_look_ahead, 2U) << engine;
  (*opened)->SetRouteObserver(
      [&](const SeenRouting& seen) {
        const uint32_t k = seen.routing.n_used;
        for (size_t at = 0; at < seen.ahead.size(); at += k) {
          const auto row = seen.ahead.subspan(at, k);
          std::ranges::sort(predictions.emplace_back(row.begin(), row.end()));
        }
      },
      2);
  Sequence sequence = (*opened)->NewSequence();
  for (const Token t : SeededTokens(20, 256, 5)) {
    EXPECT_TRUE(Append(**opened, sequence, {&t, 1}));
  }
  return predictions;
}

class EarlyRoutersTest : public testing::TestWithParam<std::string> {};

// Values differ in their last bits between the engines, so a near tie may fall otherwise.
TEST_P(EarlyRoutersTest, PredictWhatTheNativeEngineDoes) {
  const TempFolder folder;
  // Routers that choose groups first are not predicted, so there are none here.
  const std::string path = WriteTinyModel(
      folder.path(),
      {.arch = GetParam(), .type = "F32", .layers = 4, .experts = 16, .used = 4, .groups = 1});
  const auto native = Predictions(path, "native");
  const auto hosted = Predictions(path, "hosted");
  ASSERT_EQ(native.size(), hosted.size());
  ASSERT_GE(native.size(), 20U * 3U);
  size_t equal = 0;
  for (size_t i = 0; i < native.size(); ++i) equal += native[i] == hosted[i];
  EXPECT_GE(equal * 50, native.size() * 49) << equal << " of " << native.size();
}

// Of these the hosted engine predicts nothing (below).
std::vector<std::string> Predicted() {
  std::vector<std::string> archs = TinyArchs();
  std::erase_if(archs, [](const std::string& arch) {
    return arch == "nemotron_h_moe" || arch == "gemma4" || arch == "deepseek4";
  });
  return archs;
}

INSTANTIATE_TEST_SUITE_P(Families, EarlyRoutersTest, testing::ValuesIn(Predicted()),
                         [](const auto& about) { return CaseName(about.param); });

// Routers that read something else than their experts do, choose by a table of tokens or groups
// first, or differ in K.
TEST(EarlyRouters, AreFoundInMostArchitectures) {
  const TempFolder folder;
  std::set<std::string> without;
  for (const std::string& arch : ZooArchs()) {
    const auto opened = OpenEngine(WriteZooModel(folder.path(), arch), Options("hosted", 1));
    ASSERT_TRUE(opened) << opened.error().message;
    if ((*opened)->facts().max_look_ahead == 0) without.insert(arch);
  }
  EXPECT_EQ(without, (std::set<std::string>{"deepseek4", "gemma4", "grovemoe", "kimi-k3", "llama4",
                                            "maion-coder", "nemotron_h_moe", "smallthinker"}));
}

}  // namespace
}  // namespace moestro
