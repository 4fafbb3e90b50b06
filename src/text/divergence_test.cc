// SPDX-License-Identifier: MIT
#include "text/divergence.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace moestro {
namespace {

std::vector<float> Logs(const std::vector<double>& probabilities) {
  std::vector<float> logs;
  for (const double p : probabilities) logs.push_back(static_cast<float>(std::log(p)));
  return logs;
}

TEST(Divergence, LogSoftmaxOfKnownRows) {
  std::vector<float> out(2);
  LogSoftmax(std::vector<float>{0.0F, 0.0F}, out);
  EXPECT_FLOAT_EQ(out[0], std::log(0.5F));
  // No overflow, and a constant changes nothing.
  LogSoftmax(std::vector<float>{1000.0F, 1000.0F + std::log(3.0F)}, out);
  EXPECT_NEAR(out[0], std::log(0.25), 1e-4);
  EXPECT_NEAR(out[1], std::log(0.75), 1e-4);
  std::vector<float> same = {1.0F, 2.0F};
  LogSoftmax(same, same);
  EXPECT_NEAR(std::exp(same[0]) + std::exp(same[1]), 1.0, 1e-7);
}

TEST(Divergence, OfKnownRows) {
  const auto half = Logs({0.5, 0.5});
  const auto quarter = Logs({0.75, 0.25});
  EXPECT_NEAR(Divergence(half, quarter), 0.5 * std::log(0.5 / 0.75) + 0.5 * std::log(2.0), 1e-7);
  EXPECT_NEAR(Divergence(quarter, half), 0.75 * std::log(1.5) + 0.25 * std::log(0.5), 1e-7);
  EXPECT_EQ(Divergence(half, half), 0.0);
  // What is impossible for both adds nothing; what only the lossy one rules out is infinitely far.
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(Divergence(std::vector<float>{0.0F, kNever}, std::vector<float>{0.0F, kNever}), 0.0);
  EXPECT_NEAR(Divergence(std::vector<float>{0.0F, kNever}, half), std::log(2.0), 1e-7);
  EXPECT_EQ(Divergence(half, std::vector<float>{0.0F, kNever}),
            std::numeric_limits<double>::infinity());
  EXPECT_NEAR(Divergence(std::vector<float>{-0.0F, -900.0F}, std::vector<float>{-900.0F, -0.0F}),
              900.0, 1e-3);
}

// Rows that differ by a unit in the last place are 1e-14 apart, not 1e-8 as their sums are from 1.
TEST(Divergence, IsNeverNegative) {
  std::mt19937 random(1);
  for (int i = 0; i < 50; ++i) {
    std::vector<float> exact(500);
    for (float& x : exact) x = static_cast<float>(random() % 10000) / 1000.0F;
    LogSoftmax(exact, exact);
    std::vector<float> lossy = exact;
    for (float& x : lossy) {
      if (random() % 2 == 0) x = std::nextafter(x, 0.0F);
    }
    const double kl = Divergence(exact, lossy);
    EXPECT_GT(kl, 0.0);
    EXPECT_LT(kl, 1e-12);
  }
}

TEST(OneStepKl, IsTheMeanOfTheChecksWithItsError) {
  OneStepKl kl;
  const std::array even = {1.0F, 1.0F};
  const std::array odd = {std::log(3.0F), 0.0F};  // 3/4, 1/4
  kl.Add(even, even);
  EXPECT_EQ(kl.mean(), 0.0);
  EXPECT_FALSE(kl.error());
  kl.Add(even, odd);
  const double one = 0.5 * std::log(0.5 / 0.75) + 0.5 * std::log(0.5 / 0.25);
  EXPECT_NEAR(kl.mean(), one / 2.0, 1e-6);
  // Of the two values 0 and `one`: their deviation is one/sqrt(2), the mean's one/2.
  EXPECT_NEAR(kl.error().value(), one / 2.0, 1e-6);
  EXPECT_EQ(kl.tokens(), 2U);
}

}  // namespace
}  // namespace moestro
