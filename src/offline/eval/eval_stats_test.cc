// SPDX-License-Identifier: MIT
#include "offline/eval/eval_stats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "base/quantile.h"
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

}  // namespace
}  // namespace moestro
