// SPDX-License-Identifier: MIT
// Rows of several sequences in one step, of each as many as it has: libllama cuts such a batch
// into several graphs where layers have a state.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "engine/append.h"
#include "load/open_engine.h"
#include "tests/support/llama_zoo_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

std::vector<Token> RowTokens(size_t n, uint32_t seed) {
  std::vector<Token> tokens;
  for (size_t i = 0; i < n; ++i) tokens.push_back(static_cast<Token>((i * 37 + seed * 11) % 256));
  return tokens;
}

class UnevenRows : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { path_ = WriteZooModel(folder_.path(), GetParam()); }
  std::unique_ptr<Engine> Open(uint32_t threads = 1) const {
    EngineOptions options;
    options.engine = "hosted";
    options.cache = CacheSize{.percent = 100.0};
    options.threads = threads;
    options.ctx = 256;
    options.sequences = 4;
    auto engine = OpenEngine(path_, options);
    EXPECT_TRUE(engine) << engine.error().message;
    return engine ? *std::move(engine) : nullptr;
  }
  TempFolder folder_;
  std::string path_;
};

// A decode row of one text beside a prompt's rows of another.
TEST_P(UnevenRows, ADecodeRowGoesBesideAPrompt) {
  const auto engine = Open();
  Sequence a = engine->NewSequence();
  Sequence b = engine->NewSequence();
  ASSERT_TRUE(AppendAll(*engine, a, RowTokens(6, 1)));
  Batch batch;
  batch.rows.push_back({.sequence = a.id(), .position = 6, .token = 9, .wants_logits = true});
  const std::vector<Token> prompt = RowTokens(5, 2);
  for (uint32_t i = 0; i < prompt.size(); ++i) {
    batch.rows.push_back({.sequence = b.id(),
                          .position = i,
                          .token = prompt[i],
                          .kind = RowKind::kPrompt,
                          .wants_logits = i + 1 == prompt.size()});
  }
  std::vector<std::vector<float>> got(batch.size());
  const Status done = engine->Step(batch, [&](size_t row, std::span<const float> logits) {
    got[row].assign(logits.begin(), logits.end());
  });
  ASSERT_TRUE(done) << done.error().message;
  const auto alone = Open();
  Sequence c = alone->NewSequence();
  Sequence d = alone->NewSequence();
  ASSERT_TRUE(AppendAll(*alone, c, RowTokens(6, 1)));
  const std::vector<Token> one = {9};
  const auto first = Append(*alone, c, one);
  ASSERT_TRUE(first);
  const std::vector<float> expected_a(first->begin(), first->end());
  const auto second = AppendAll(*alone, d, prompt);
  ASSERT_TRUE(second);
  const size_t n = expected_a.size();
  const auto difference = [](std::span<const float> x, std::span<const float> y) {
    float most = 0;
    for (size_t i = 0; i < x.size(); ++i) most = std::max(most, std::abs(x[i] - y[i]));
    return most;
  };
  ASSERT_EQ(got[0].size(), n);
  ASSERT_EQ(got.back().size(), n);
  EXPECT_LT(difference(got[0], expected_a), 1e-3F);
  EXPECT_LT(difference(got.back(), std::span(*second).last(n)), 1e-3F);
}

INSTANTIATE_TEST_SUITE_P(Kinds, UnevenRows,
                         testing::Values("qwen3moe", "qwen3next", "lfm2moe", "nemotron_h_moe",
                                         "kimi-linear", "deepseek2", "mimo2", "llama4"),
                         [](const auto& arch) {
                           std::string name = arch.param;
                           for (char& c : name) c = c == '-' || c == '_' ? 'X' : c;
                           return name;
                         });

}  // namespace
}  // namespace moestro
