// SPDX-License-Identifier: MIT
#include "compute/row_kernel.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace moestro {
namespace {

constexpr float kEps = 1e-6F;

std::vector<float> NormalValues(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& v : values) v = normal(random);
  return values;
}

class RowKernelTest : public testing::TestWithParam<RowKernel> {};

// Widths of whole vectors, of parts of one, and of less than one; from odd addresses as well. An
// F32 sum of 2,048 terms over 4 or more partial sums is right to 1e-6, and so is its root; three
// roundings follow.
TEST_P(RowKernelTest, NormsAsTheDefinitionSays) {
  for (const uint32_t n : {1U, 7U, 16U, 64U, 100U, 2048U, 2051U}) {
    const std::vector<float> x = NormalValues(n + 1, n);
    const std::vector<float> weight = NormalValues(n + 1, n + 1);
    std::vector<float> out(n + 1, 7.0F);
    GetParam().norm(
        {.from = x.data() + 1, .weight = weight.data() + 1, .to = out.data(), .n = n, .eps = kEps});
    double sum = 0.0;
    for (uint32_t i = 1; i <= n; ++i) sum += double{x[i]} * x[i];
    const double factor = 1.0 / std::sqrt(sum / n + kEps);
    for (uint32_t i = 0; i < n; ++i) {
      const double expected = x[i + 1] * factor * weight[i + 1];
      ASSERT_NEAR(out[i], expected, 2e-6 * std::abs(expected) + 1e-9) << n << ", value " << i;
    }
    EXPECT_EQ(out[n], 7.0F);
    std::vector<float> in_place(x.begin() + 1, x.end());
    GetParam().norm({.from = in_place.data(),
                     .weight = weight.data() + 1,
                     .to = in_place.data(),
                     .n = n,
                     .eps = kEps});
    in_place.push_back(7.0F);
    EXPECT_EQ(in_place, out);
  }
}

TEST_P(RowKernelTest, NormsOfDamagedRowsAreNoNumbers) {
  std::vector<float> x(64, 1.0F);
  x[40] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> weight(64, 1.0F);
  GetParam().norm(
      {.from = x.data(), .weight = weight.data(), .to = x.data(), .n = 64, .eps = kEps});
  for (const float v : x) EXPECT_TRUE(std::isnan(v));
}

TEST_P(RowKernelTest, AddsEveryValue) {
  for (const uint32_t n : {1U, 15U, 64U, 2049U}) {
    const std::vector<float> a = NormalValues(n, 1);
    const std::vector<float> b = NormalValues(n, 2);
    std::vector<float> sum = a;
    GetParam().add(sum.data(), b.data(), sum.data(), n);
    for (uint32_t i = 0; i < n; ++i) EXPECT_EQ(sum[i], a[i] + b[i]);
  }
}

TEST_P(RowKernelTest, TurnsPairsOfHalvesAndOfNeighbours) {
  for (const uint32_t n : {2U, 6U, 32U, 64U, 80U, 128U}) {
    const std::vector<float> angles = NormalValues(n / 2, 3);
    const std::vector<float> x = NormalValues(n, 4);
    for (const bool has_halves : {true, false}) {
      const auto first = [&](uint32_t pair) { return has_halves ? pair : 2 * pair; };
      const auto second = [&](uint32_t pair) { return has_halves ? n / 2 + pair : 2 * pair + 1; };
      std::vector<float> turns(n);
      for (uint32_t p = 0; p < n / 2; ++p) {
        turns[first(p)] = std::cos(angles[p]);
        turns[second(p)] = std::sin(angles[p]);
      }
      std::vector<float> turned = x;
      (has_halves ? GetParam().turn_halves : GetParam().turn_neighbours)(turned.data(),
                                                                         turns.data(), n);
      for (uint32_t p = 0; p < n / 2; ++p) {
        const double c = turns[first(p)];
        const double s = turns[second(p)];
        // Two products and a sum of values up to 4: three roundings of 2^-24 of these.
        EXPECT_NEAR(turned[first(p)], x[first(p)] * c - x[second(p)] * s, 1e-6);
        EXPECT_NEAR(turned[second(p)], x[first(p)] * s + x[second(p)] * c, 1e-6);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, RowKernelTest, testing::ValuesIn(RowKernel::AllHere()),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace moestro
