// SPDX-License-Identifier: MIT
#include "kit/rate_watch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace moestro {
namespace {

// Work of `seconds` at a rate, in steps of a tenth of a second.
void Work(RateWatch& watch, double rate, double seconds) {
  for (int i = 0; i < static_cast<int>(std::lround(seconds * 10)); ++i) {
    watch.Observe(rate * 0.1, 0.1);
  }
}

TEST(RateWatch, NoticesAFallAndARise) {
  RateWatch watch;
  Work(watch, 900.0, 10.0);
  EXPECT_FALSE(watch.is_low());
  Work(watch, 400.0, 3.1);
  EXPECT_TRUE(watch.is_low());
  EXPECT_NEAR(watch.share(), 400.0 / 900.0, 0.01);
  Work(watch, 300.0, 60.0);
  EXPECT_TRUE(watch.is_low());
  EXPECT_NEAR(watch.share(), 300.0 / 900.0, 0.01);
  Work(watch, 600.0, 60.0);
  EXPECT_TRUE(watch.is_low());
  Work(watch, 890.0, 3.1);
  EXPECT_FALSE(watch.is_low());
}

// A second's pause of a drive, single slow steps, noise.
TEST(RateWatch, IsNotMovedByMoments) {
  RateWatch watch;
  Work(watch, 900.0, 5.0);
  Work(watch, 100.0, 1.0);
  EXPECT_FALSE(watch.is_low());
  Work(watch, 900.0, 5.0);
  std::mt19937 random(1);
  std::uniform_real_distribution<double> around(0.7, 1.3);
  for (int i = 0; i < 5000; ++i) {
    watch.Observe(around(random) * 900.0 * 0.1, 0.1);
    EXPECT_FALSE(watch.is_low()) << i;
  }
}

// A text that grows makes each token a little slower.
TEST(RateWatch, FollowsSlowChanges) {
  RateWatch watch;
  double rate = 900.0;
  for (int second = 0; second < 600; ++second) {
    Work(watch, rate, 1.0);
    EXPECT_FALSE(watch.is_low()) << second;
    rate *= 0.997;
  }
  EXPECT_LT(rate, 200.0);
  Work(watch, rate / 2, 4.0);
  EXPECT_TRUE(watch.is_low());
}

TEST(RateWatch, IgnoresNonsenseAndForgets) {
  RateWatch watch;
  for (const double odd : {0.0, -1.0, std::nan(""), -std::numeric_limits<double>::infinity()}) {
    watch.Observe(odd, 5.0);
    watch.Observe(5.0, odd);
  }
  EXPECT_EQ(watch.share(), 1.0);
  Work(watch, 900.0, 5.0);
  watch.Restart();
  Work(watch, 100.0, 20.0);
  EXPECT_FALSE(watch.is_low());
}

}  // namespace
}  // namespace moestro
