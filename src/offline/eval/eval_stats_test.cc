// SPDX-License-Identifier: MIT
#include "offline/eval/eval_stats.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/distribution.h"
#include "base/text.h"
#include "tests/support/temp_folder_testing.h"
#include "text/divergence.h"

namespace moestro {
namespace {

std::vector<float> Logs(const std::vector<double>& probabilities) {
  std::vector<float> logs;
  for (const double p : probabilities) logs.push_back(static_cast<float>(std::log(p)));
  return logs;
}

TEST(EvalStats, EvenOddsOfFourArePerplexityFour) {
  EvalStats stats(10, 1);
  for (int i = 0; i < 10; ++i) stats.Add(Logs({0.25, 0.25, 0.25, 0.25}), i % 4);
  const EvalFigures figures = stats.Figures();
  EXPECT_EQ(figures.tokens, 10U);
  EXPECT_NEAR(figures.perplexity.value, 4.0, 1e-6);
  EXPECT_TRUE(std::isnan(figures.perplexity.error));  // one block
  EXPECT_FALSE(figures.against.has_value());
}

// Two windows: 64 tokens of ln 2 and 32 of ln 4. The mean is (64 + 64) / 96 ln 2 = 4/3 ln 2; each
// block is 64/3 ln 2 off, so the error is sqrt(2 * 2 / 1) * 64/3 ln 2 / 96 = 4/9 ln 2.
TEST(EvalStats, ErrorsAreThoseOfBlocks) {
  EvalStats stats(96, 2);
  for (int i = 0; i < 64; ++i) stats.Add(Logs({0.5, 0.25, 0.25}), 0);
  stats.BeginWindow();
  for (int i = 0; i < 32; ++i) stats.Add(Logs({0.5, 0.25, 0.25}), 1);
  const EvalFigures figures = stats.Figures();
  const double perplexity = std::pow(2.0, 4.0 / 3.0);
  EXPECT_NEAR(figures.perplexity.value, perplexity, 1e-6);
  EXPECT_NEAR(figures.perplexity.error, perplexity * 4.0 / 9.0 * std::log(2.0), 1e-6);
}

// The same tokens in another order: what varies within a block makes no error, between blocks it
// does, and a window's end ends a block.
TEST(EvalStats, ABlockIsSixtyFourNeighboursOfAWindow) {
  const auto error = [](bool is_sorted) {
    EvalStats stats(256, 4);
    for (int i = 0; i < 256; ++i) {
      const bool is_hard = is_sorted ? i >= 128 : i % 2 == 0;
      stats.Add(Logs({0.5, 0.25, 0.25}), is_hard ? 1 : 0);
    }
    return stats.Figures().perplexity.error;
  };
  EXPECT_EQ(error(false), 0.0);
  EXPECT_GT(error(true), 0.1);
  EvalStats split(128, 4);
  for (int i = 0; i < 128; ++i) {
    if (i % 32 == 0) split.BeginWindow();
    split.Add(Logs({0.5, 0.25, 0.25}), i / 32 % 2);
  }
  EXPECT_GT(split.Figures().perplexity.error, 0.0);  // as 64 tokens each, blocks would be alike
}

TEST(EvalStats, ComparedWithItselfEverythingIsZeroToTheBit) {
  EvalStats stats(200, 4);
  for (int i = 0; i < 200; ++i) {
    const auto row = Logs({0.7, 0.2, 0.1});
    stats.Add(row, row, i % 3);
  }
  const auto against = stats.Figures().against.value();
  for (const Estimate& e :
       {against.kl_mean, against.kl_p99, against.kl_p999, against.delta_p_rms}) {
    EXPECT_EQ(e.value, 0.0);
    EXPECT_EQ(e.error, 0.0);
  }
  EXPECT_EQ(against.kl_max, 0.0);
  EXPECT_EQ(against.top1_agreement.value, 1.0);
  EXPECT_EQ(against.top1_agreement.error, 0.0);
}

TEST(EvalStats, FiguresAgainstTheExactRunByHand) {
  EvalStats stats(4, 1);
  const auto exact = Logs({0.5, 0.3, 0.2});
  const auto other = Logs({0.3, 0.5, 0.2});
  stats.Add(exact, exact, 0);
  stats.Add(exact, exact, 0);
  stats.Add(other, exact, 0);  // 0.5 becomes 0.3, and the first choice changes
  stats.Add(exact, exact, 2);
  const EvalFigures figures = stats.Figures();
  const auto& against = figures.against.value();
  const double kl = 0.2 * std::log(5.0 / 3.0);
  EXPECT_NEAR(against.kl_mean.value, kl / 4.0, 1e-7);
  EXPECT_NEAR(against.kl_max, kl, 1e-7);
  EXPECT_NEAR(against.delta_p_rms.value, std::sqrt(0.2 * 0.2 / 4.0), 1e-7);
  EXPECT_EQ(against.top1_agreement.value, 0.75);
  EXPECT_NEAR(figures.perplexity.value, std::pow(0.5 * 0.5 * 0.3 * 0.2, -0.25), 1e-6);
  EXPECT_NEAR(against.exact_perplexity, std::pow(0.5 * 0.5 * 0.5 * 0.2, -0.25), 1e-6);
}

TEST(EvalStats, QuantilesAreThoseOfAllTokens) {
  std::mt19937 random(3);
  const auto exact = Logs({0.5, 0.5});
  std::vector<double> all;
  EvalStats stats(5000, 79);
  for (int i = 0; i < 5000; ++i) {
    const double p = 0.3 + static_cast<double>(random() % 4000) / 10000.0;
    const auto lossy = Logs({p, 1.0 - p});
    all.push_back(Divergence(exact, lossy));
    stats.Add(lossy, exact, 0);
  }
  const auto against = stats.Figures().against.value();
  EXPECT_NEAR(against.kl_p99.value, Quantile(all, 0.99), 1e-7);
  EXPECT_NEAR(against.kl_p999.value, Quantile(all, 0.999), 1e-7);
  EXPECT_EQ(against.kl_max, Quantile(all, 1.0));
  // sqrt(0.99 * 0.01 / 5000) of the ranks, times the slope there: about 0.0014 * 0.17.
  EXPECT_GT(against.kl_p99.error, 0.00005);
  EXPECT_LT(against.kl_p99.error, 0.0015);
}

TEST(TaskStats, WilsonIntervalsFromTables) {
  const Interval half = ShareInterval(50, 100);
  EXPECT_NEAR(half.low, 0.4038, 1e-4);
  EXPECT_NEAR(half.high, 0.5962, 1e-4);
  const Interval none = ShareInterval(0, 10);
  EXPECT_NEAR(none.low, 0.0, 1e-12);
  EXPECT_NEAR(none.high, 0.2775, 1e-4);
  const Interval all = ShareInterval(10, 10);
  EXPECT_NEAR(all.low, 1.0 - 0.2775, 1e-4);
  EXPECT_DOUBLE_EQ(all.high, 1.0);
  EXPECT_EQ(ShareInterval(0, 0).high, 1.0);
}

TEST(TaskStats, McNemarByHand) {
  EXPECT_EQ(McNemar(0, 0), 1.0);
  EXPECT_NEAR(McNemar(0, 5), 2.0 / 32.0, 1e-12);
  EXPECT_NEAR(McNemar(6, 0), 2.0 / 64.0, 1e-12);
  EXPECT_NEAR(McNemar(1, 5), 2.0 * 7.0 / 64.0, 1e-12);
  EXPECT_NEAR(McNemar(3, 3), 1.0, 1e-12);  // more than 1 is 1
  EXPECT_NEAR(McNemar(400, 500), 0.00096, 0.0001);
}

class EvalShardTest : public ::testing::Test {
 protected:
  static constexpr size_t kVocab = 16;
  static constexpr uint64_t kWindows = 7;
  // Windows [begin, end) of a text, which are 1 to 200 tokens long.
  static void AddWindows(EvalStats& stats, const WindowRange& range, bool has_exact) {
    for (uint64_t window = range.begin; window < range.end; ++window) {
      std::mt19937 random(static_cast<uint32_t>(window));
      stats.BeginWindow();
      for (size_t left = 1 + random() % 200; left > 0; --left) {
        std::vector<float> lossy(kVocab);
        std::vector<float> exact(kVocab);
        for (size_t i = 0; i < kVocab; ++i) {
          exact[i] = static_cast<float>(random() % 1000) / 300.0F;
          lossy[i] = exact[i] + static_cast<float>(random() % 100) / 900.0F;
        }
        LogSoftmax(lossy, lossy);
        LogSoftmax(exact, exact);
        const auto next = static_cast<Token>(random() % kVocab);
        if (has_exact) {
          stats.Add(lossy, exact, next);
        } else {
          stats.Add(lossy, next);
        }
      }
    }
  }
  std::vector<FoundShard> Write(uint32_t count, const std::function<bool(uint32_t)>& has_exact,
                                const std::function<void(std::string&)>& change = {}) const {
    std::vector<std::string> paths;
    for (uint32_t index = 1; index <= count; ++index) {
      const ShardInfo info{.shard = {.index = index, .count = count}, .windows = kWindows};
      EvalStats stats(2000, 100);
      AddWindows(stats, info.range(), has_exact(index));
      std::string payload = info.range().size() > 0 ? EncodeSums(stats.Sums()) : "";
      if (change) change(payload);
      paths.push_back(folder_.File(Format("{}", index)));
      EXPECT_TRUE(WriteShard(paths.back(), info, payload));
    }
    const auto found = FindShards(paths);
    EXPECT_TRUE(found) << found.error().message;
    return found.value_or(std::vector<FoundShard>());
  }
  TempFolder folder_;
};

void ExpectSameBits(const Estimate& a, const Estimate& b) {
  EXPECT_EQ(std::bit_cast<uint64_t>(a.value), std::bit_cast<uint64_t>(b.value));
  EXPECT_EQ(std::bit_cast<uint64_t>(a.error), std::bit_cast<uint64_t>(b.error));
}

TEST_F(EvalShardTest, AnyNumberOfShardsGivesTheSameBits) {
  for (const bool has_exact : {false, true}) {
    EvalStats all(2000, 100);
    AddWindows(all, {.begin = 0, .end = kWindows}, has_exact);
    const EvalFigures whole = all.Figures();
    for (const uint32_t count : {1U, 2U, 3U, 5U, 20U}) {
      const auto merged = MergeEval(Write(count, [&](uint32_t) { return has_exact; }));
      ASSERT_TRUE(merged) << merged.error().message;
      EXPECT_EQ(merged->windows, kWindows);
      EXPECT_EQ(merged->figures.tokens, whole.tokens);
      ExpectSameBits(merged->figures.perplexity, whole.perplexity);
      ASSERT_EQ(merged->figures.against.has_value(), has_exact);
      if (!has_exact) continue;
      const EvalFigures::Against& a = *merged->figures.against;
      const EvalFigures::Against& b = *whole.against;
      EXPECT_EQ(a.exact_perplexity, b.exact_perplexity);
      EXPECT_EQ(a.kl_max, b.kl_max);
      ExpectSameBits(a.kl_mean, b.kl_mean);
      ExpectSameBits(a.kl_p99, b.kl_p99);
      ExpectSameBits(a.kl_p999, b.kl_p999);
      ExpectSameBits(a.delta_p_rms, b.delta_p_rms);
      ExpectSameBits(a.top1_agreement, b.top1_agreement);
    }
  }
}

TEST_F(EvalShardTest, PayloadsOfNoRunAreRefused) {
  const auto expect = [&](const std::function<void(std::string&)>& change,
                          const std::string& part) {
    const auto merged = MergeEval(Write(1, [](uint32_t) { return true; }, change));
    ASSERT_FALSE(merged) << part;
    EXPECT_EQ(merged.error().code, Errc::kInvalidFile);
    EXPECT_NE(merged.error().message.find(part), std::string::npos) << merged.error().message;
  };
  const auto put = [](size_t at, auto number) {
    return [at, number](std::string& bytes) {
      std::string raw;
      AppendNumber(raw, number);
      bytes.replace(at, raw.size(), raw);
    };
  };
  expect([](std::string& bytes) { bytes.resize(3); }, "ends too early");
  expect([](std::string& bytes) { bytes.resize(100); }, "none of a run");
  expect([](std::string& bytes) { bytes.pop_back(); }, "do not fill it");
  expect([](std::string& bytes) { bytes += "more"; }, "do not fill it");
  expect(put(0, uint32_t{2}), "none of a run");
  expect(put(0, uint32_t{0}), "do not fill it");
  expect(put(4, UINT64_MAX), "none of a run");
  expect(put(4, uint64_t{1}), "none of a run");
  for (const double tokens : {0.0, 65.0, 1.5, -1.0, std::nan(""), 1e300}) {
    expect(put(20, tokens), "a block of");
  }
  for (const float kl : {std::nanf(""), -1.0F}) {
    expect([kl](std::string& bytes) { std::memcpy(&bytes[bytes.size() - 4], &kl, 4); }, "is none");
  }
  expect(put(12, std::nan("")), "is none");
  const auto mixed = MergeEval(Write(2, [](uint32_t index) { return index == 1; }));
  ASSERT_FALSE(mixed);
  EXPECT_NE(mixed.error().message.find("only some"), std::string::npos);
}

}  // namespace
}  // namespace moestro
