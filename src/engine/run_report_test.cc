// SPDX-License-Identifier: MIT
#include "engine/run_report.h"

#include <gtest/gtest.h>

#include "base/number.h"

namespace moestro {
namespace {

TEST(SpeedBound, IsTheSlowerOfDiskAndProcessor) {
  RunStats stats;
  stats.decode = {{.needed_bytes = 3 * kGiB}, 10, 2.0};
  const Probes probes{.disk_bandwidth = {.best = 2.0 * static_cast<double>(kGiB)},
                      .compute_seconds_per_token = 0.1};
  const SpeedBound bound = DecodeBound(stats, probes);
  EXPECT_DOUBLE_EQ(bound.disk_seconds, 1.5);
  EXPECT_DOUBLE_EQ(bound.compute_seconds, 1.0);
  EXPECT_DOUBLE_EQ(bound.seconds(), 1.5);
  EXPECT_DOUBLE_EQ(bound.percent(2.0), 75.0);
  EXPECT_DOUBLE_EQ(bound.tokens_per_second(10), 10.0 / 1.5);
  EXPECT_DOUBLE_EQ(DecodeBound(stats, {.compute_seconds_per_token = 0.1}).seconds(), 1.0);
}

TEST(SpeedBound, HoldsForEveryTokenByItself) {
  RunStats stats;
  stats.decode = {{.needed_bytes = 1000}, 2, 2.0};
  for (const double bytes : {1000.0, 0.0}) stats.decode_bytes.Add(bytes);  // cold, then warm
  const SpeedBound bound =
      DecodeBound(stats, {.disk_bandwidth = {.best = 1000.0}, .compute_seconds_per_token = 0.25});
  EXPECT_DOUBLE_EQ(bound.of_sums(), 1.0);
  EXPECT_DOUBLE_EQ(bound.seconds(), 1.25);
}

TEST(SpeedBound, NothingKnownIsZeroNotNonsense) {
  const SpeedBound bound = DecodeBound({}, {});
  EXPECT_EQ(bound.seconds(), 0.0);
  EXPECT_EQ(bound.tokens_per_second(10), 0.0);
  EXPECT_EQ(bound.percent(0.0), 0.0);
}

TEST(ProbedRate, TheBestCountsAndTheLeastIsKept) {
  ProbedRate rate;
  for (const double one : {20.0, 45.0, 17.0}) rate.Add(one);
  EXPECT_EQ(rate.best, 45.0);
  EXPECT_EQ(rate.least, 17.0);
}

TEST(Limit, IsTheSlowerOfMemoryAndDisk) {
  Limit limit{.touched_bytes = 30 * kGiB,
              .fewest_bytes = 2 * kGiB,
              .memory_bandwidth = {.best = 20.0 * static_cast<double>(kGiB)},
              .disk_bandwidth = {.best = 1.0 * static_cast<double>(kGiB)}};
  EXPECT_DOUBLE_EQ(limit.memory_seconds(), 1.5);
  EXPECT_DOUBLE_EQ(limit.disk_seconds(), 2.0);
  EXPECT_DOUBLE_EQ(limit.seconds(), 2.0);
  EXPECT_DOUBLE_EQ(limit.tokens_per_second(10), 5.0);
  EXPECT_DOUBLE_EQ(limit.percent(8.0), 25.0);
  limit.fewest_bytes = kGiB;
  EXPECT_DOUBLE_EQ(limit.seconds(), 1.5);
  EXPECT_EQ(Limit{}.seconds(), 0.0);
  EXPECT_EQ(Limit{}.tokens_per_second(10), 0.0);
  EXPECT_EQ(Limit{}.percent(0.0), 0.0);
}

}  // namespace
}  // namespace moestro
