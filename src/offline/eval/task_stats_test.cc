// SPDX-License-Identifier: MIT
#include "offline/eval/task_stats.h"

#include <gtest/gtest.h>

namespace moestro {
namespace {

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

}  // namespace
}  // namespace moestro
