// SPDX-License-Identifier: MIT
#include "base/distribution.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace moestro {
namespace {

TEST(Quantile, NoneAndOne) {
  EXPECT_EQ(Quantile({}, 0.5), 0.0);
  EXPECT_EQ(Quantile({7.0}, 0.0), 7.0);
  EXPECT_EQ(Quantile({7.0}, 1.0), 7.0);
}

TEST(Quantile, SortsAndInterpolates) {
  EXPECT_EQ(Median({3.0, 1.0, 2.0}), 2.0);
  EXPECT_EQ(Median({4.0, 1.0, 2.0, 3.0}), 2.5);
  EXPECT_DOUBLE_EQ(Quantile({1, 2, 3, 4, 5}, 0.95), 4.8);
  EXPECT_EQ(Quantile({5, 1, 3}, 1.0), 5.0);
}

Histogram Of(const std::vector<double>& values) {
  Histogram histogram;
  for (const double value : values) histogram.Add(value);
  return histogram;
}

// Log-uniform over `decades` from 0.01 on.
std::vector<double> RandomValues(size_t n, double decades) {
  std::mt19937_64 random(3);
  std::vector<double> values;
  for (size_t i = 0; i < n; ++i) {
    values.push_back(0.01 * std::pow(10.0, std::uniform_real_distribution(0.0, decades)(random)));
  }
  return values;
}

TEST(Histogram, NothingAndOneAreExact) {
  EXPECT_EQ(Histogram().Quantile(0.5), 0.0);
  EXPECT_EQ(Histogram().SumOfAtLeast(3.0), 0.0);
  EXPECT_EQ(Of({123.456}).Quantile(0.95), 123.456);
  EXPECT_EQ(Of({0.0, 1000.0}).SumOfAtLeast(250.0), 1250.0);
  EXPECT_EQ(Of({0.0}).Quantile(0.5), 0.0);
}

TEST(Histogram, QuantilesAreOffByHalfAPercentAtMost) {
  for (const double decades : {0.01, 0.5, 9.0}) {
    const std::vector<double> values = RandomValues(2001, decades);
    const Histogram histogram = Of(values);
    EXPECT_EQ(histogram.count(), values.size());
    for (const double q : {0.0, 0.05, 0.5, 0.95, 0.99, 1.0}) {
      const double exact = Quantile(values, q);
      EXPECT_NEAR(histogram.Quantile(q), exact, 0.005 * exact) << decades << " " << q;
    }
  }
}

TEST(Histogram, SumsAreNeverTooLargeAndHardlyTooSmall) {
  for (const double decades : {0.004, 0.5, 9.0}) {
    const std::vector<double> values = RandomValues(2001, decades);
    const Histogram histogram = Of(values);
    for (const double floor : {0.0, 0.01, 0.010045, 0.02, 1.0, 1e9}) {
      double exact = 0.0;
      for (const double value : values) exact += std::max(value, floor);
      const double sum = histogram.SumOfAtLeast(floor);
      EXPECT_LE(sum, exact * (1 + 1e-12)) << decades << " " << floor;  // rounding of the sums
      EXPECT_GE(sum, exact * 0.995) << decades << " " << floor;
    }
  }
}

TEST(Histogram, MemoryDoesNotGrowWithTheRun) {
  const size_t before = ::mallinfo2().uordblks;
  Histogram histogram;
  for (int i = 0; i < 400000; ++i) histogram.Add(std::pow(10.0, (i % 8000) / 100.0 - 40.0));
  // 4168 classes in nodes of 80 bytes; the values would take 3 MB.
  EXPECT_LT(::mallinfo2().uordblks, before + 4168 * 96);
  EXPECT_EQ(histogram.count(), 400000U);
}

}  // namespace
}  // namespace moestro
