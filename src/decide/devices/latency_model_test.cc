// SPDX-License-Identifier: MIT
#include "decide/devices/latency_model.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <vector>

namespace moestro {
namespace {

std::vector<CostSample> SamplesOf(const Cost& cost, double noise = 0.0) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> off(-noise, noise);
  std::vector<CostSample> samples;
  for (const uint64_t bytes : {100'000U, 1'000'000U, 3'000'000U, 50'000'000U}) {
    for (const uint32_t rows : {1U, 2U, 8U, 64U, 512U}) {
      samples.push_back({bytes, rows, cost.Seconds(bytes, rows) * (1.0 + off(random))});
    }
  }
  return samples;
}

TEST(FitCost, FindsWhatTheSamplesWereMadeOf) {
  const Cost made{.base = 12e-6, .per_byte = 5e-11, .per_row = 2e-12};
  const Cost found = FitCost(SamplesOf(made));
  EXPECT_NEAR(found.base, made.base, 1e-3 * made.base);
  EXPECT_NEAR(found.per_byte, made.per_byte, 1e-3 * made.per_byte);
  EXPECT_NEAR(found.per_row, made.per_row, 1e-3 * made.per_row);
  EXPECT_LT(found.error, 1e-6);
}

TEST(FitCost, SaysHowFarItMisses) {
  const Cost made{.base = 12e-6, .per_byte = 5e-11, .per_row = 2e-12};
  const Cost found = FitCost(SamplesOf(made, 0.2));
  EXPECT_GT(found.error, 0.03);
  EXPECT_LT(found.error, 0.2);
  EXPECT_NEAR(found.Seconds(3'000'000, 8), made.Seconds(3'000'000, 8),
              0.2 * made.Seconds(3'000'000, 8));
}

// A device that is done sooner with more rows (another kernel) must not make the model predict
// times below zero.
TEST(FitCost, HasNoNegativePart) {
  const std::vector<CostSample> samples = {
      {1'000'000, 1, 100e-6}, {1'000'000, 64, 60e-6}, {2'000'000, 1, 90e-6}};
  const Cost found = FitCost(samples);
  EXPECT_GE(found.base, 0.0);
  EXPECT_GE(found.per_byte, 0.0);
  EXPECT_GE(found.per_row, 0.0);
  EXPECT_GT(found.Seconds(1'000'000), 0.0);
}

TEST(FitCost, OfOneSampleIsInProportionToBytes) {
  const std::vector<CostSample> samples = {{1'000'000, 1, 100e-6}};
  const Cost found = FitCost(samples);
  EXPECT_DOUBLE_EQ(found.Seconds(2'000'000), 200e-6);
  EXPECT_DOUBLE_EQ(found.base, 0.0);
  EXPECT_DOUBLE_EQ(found.error, 0.0);
}

TEST(FitCost, OneStalledMeasurementOfManyShowsInTheError) {
  std::vector<CostSample> samples = SamplesOf({.base = 0.0, .per_byte = 1e-10});
  samples.front().seconds *= 50.0;
  const Cost found = FitCost(samples);
  // Relative misses: a sample that took 50 times as long misses by almost its whole self, no more.
  EXPECT_NEAR(found.Seconds(50'000'000), 5e-3, 0.1 * 5e-3);
}

TEST(CheckLatency, NamesWhatIsWrong) {
  EXPECT_TRUE(CheckLatency({}));
  LatencyModel model{.devices = {{}, {}}};
  model.devices[1].copy.per_byte = -1.0;
  const Status negative = CheckLatency(model);
  ASSERT_FALSE(negative);
  EXPECT_NE(negative.error().message.find("'copy'"), std::string::npos) << negative.error().message;
  model = {};
  model.disk.base = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(CheckLatency(model));
  model = {};
  model.host_beside = 0.5;
  EXPECT_FALSE(CheckLatency(model));
  model = {.devices = {{}}};
  EXPECT_TRUE(CheckLatency(model));
  model.devices[0].copy_beside = 0.5;
  EXPECT_FALSE(CheckLatency(model));
  model = {.devices = {{}}};
  model.devices[0].launch = std::numeric_limits<double>::infinity();
  EXPECT_FALSE(CheckLatency(model));
}

TEST(LatencyTracker, KeepsItsOpinionUntilItHasSeenEnough) {
  LatencyTracker tracker(1);
  for (size_t i = 0; i + 1 < LatencyTracker::kWindow / 2; ++i) {
    tracker.Observe(Lane::kHost, 1e-3, 3e-3);
  }
  EXPECT_DOUBLE_EQ(tracker.Ratio(Lane::kHost), 1.0);
  tracker.Observe(Lane::kHost, 1e-3, 3e-3);
  EXPECT_DOUBLE_EQ(tracker.Ratio(Lane::kHost), 3.0);
  EXPECT_DOUBLE_EQ(tracker.Ratio(Lane::kDevice), 1.0);
}

TEST(LatencyTracker, AStallChangesNothingAndALastingChangeIsFollowed) {
  LatencyTracker tracker(1);
  for (size_t i = 0; i < LatencyTracker::kWindow; ++i) tracker.Observe(Lane::kCopy, 1e-3, 1e-3);
  for (int i = 0; i < 10; ++i) tracker.Observe(Lane::kCopy, 1e-3, 1.0);
  EXPECT_DOUBLE_EQ(tracker.Ratio(Lane::kCopy), 1.0);
  for (size_t i = 0; i < LatencyTracker::kWindow; ++i) tracker.Observe(Lane::kCopy, 1e-3, 2e-3);
  EXPECT_DOUBLE_EQ(tracker.Ratio(Lane::kCopy), 2.0);
}

// A device that ends before the CPU shows a bound, which is far above its time if the CPU's share
// is large. Collecting takes 0.1 ms of finished results here.
TEST(LatencyTracker, ABoundOnlyLowersARatio) {
  LatencyTracker tracker(1);
  const auto observe = [&](double before, double done, double collecting) {
    const double ratio = tracker.Ratio(Lane::kDevice);
    for (size_t i = 0; i < LatencyTracker::kWindow; ++i) {
      tracker.ObserveDevice(
          {.predicted = 1e-3, .before = before, .done = done, .collecting = collecting}, 1e-4,
          ratio, 0);
    }
    return tracker.Ratio(Lane::kDevice);
  };
  EXPECT_DOUBLE_EQ(observe(3.9e-3, 4e-3, 1e-4), 1.0);  // a bound above
  EXPECT_DOUBLE_EQ(observe(1e-3, 5e-3, 4e-3), 5.0);    // waited for
  EXPECT_DOUBLE_EQ(observe(1.9e-3, 2e-3, 1e-4), 2.0);  // a bound below
  EXPECT_DOUBLE_EQ(observe(0.0, 3e-3, 1e-4), 3.0);     // no other processor computed
}

// Shares of one expert and of eight, each with 60 us that no expert takes; one layer in nine
// stalls.
TEST(LatencyTracker, ALayersOwnTimeOnTheCpuIsToldFromItsExperts) {
  LatencyTracker tracker(1);
  for (size_t i = 0; i < LatencyTracker::kWindow; ++i) {
    const double predicted = i % 2 == 0 ? 50e-6 : 400e-6;
    tracker.Observe(Lane::kHost, predicted, i % 9 == 0 ? 1.0 : 60e-6 + 1.2 * predicted);
  }
  EXPECT_NEAR(tracker.Ratio(Lane::kHost), 1.2, 1e-9);
  EXPECT_NEAR(tracker.ratios().host_begin, 60e-6, 1e-9);
  const LatencyModel refitted =
      tracker.Refitted({.host = {.per_byte = 1e-10}, .devices = {DeviceCosts{}}});
  EXPECT_NEAR(refitted.host_begin, 60e-6, 1e-9);
  EXPECT_NEAR(refitted.host.per_byte, 1.2e-10, 1e-15);
}

TEST(LatencyTracker, SharesThatAreAlikeGiveOneRatio) {
  LatencyTracker tracker(1);
  for (size_t i = 0; i < LatencyTracker::kWindow; ++i) {
    const double predicted = i % 2 == 0 ? 100e-6 : 120e-6;
    tracker.Observe(Lane::kHost, predicted, 2.0 * predicted);
  }
  EXPECT_NEAR(tracker.Ratio(Lane::kHost), 2.0, 1e-9);
  EXPECT_DOUBLE_EQ(tracker.ratios().host_begin, 0.0);
}

TEST(LatencyTracker, RefitsEveryLaneByItsRatio) {
  LatencyTracker tracker(2);
  const DeviceCosts one{
      .compute = {.per_byte = 1e-11}, .copy = {.per_byte = 1e-10}, .launch = 20e-6};
  const LatencyModel model{.host = {.base = 1e-6, .per_byte = 1e-10, .per_row = 1e-11},
                           .disk = {.per_byte = 1e-9},
                           .host_beside = 1.2,
                           .devices = {one, one}};
  for (size_t i = 0; i < LatencyTracker::kWindow; ++i) {
    tracker.Observe(Lane::kHost, 1e-3, 2e-3);
    tracker.Observe(Lane::kDevice, 1e-3, 0.5e-3, 0);
    tracker.Observe(Lane::kCopy, 1e-3, 3e-3, 1);
    tracker.Observe(Lane::kDisk, 0.0, 5.0);  // nothing was predicted: teaches nothing
  }
  const LatencyModel refitted = tracker.Refitted(model);
  EXPECT_DOUBLE_EQ(refitted.host.Seconds(1'000'000, 4), 2.0 * model.host.Seconds(1'000'000, 4));
  EXPECT_DOUBLE_EQ(refitted.devices[0].launch, 10e-6);
  EXPECT_EQ(refitted.devices[0].copy, one.copy);
  EXPECT_EQ(refitted.devices[1].compute, one.compute);
  EXPECT_DOUBLE_EQ(refitted.devices[1].copy.per_byte, 3e-10);
  EXPECT_EQ(refitted.disk, model.disk);
  EXPECT_DOUBLE_EQ(refitted.host_beside, 1.2);
  EXPECT_EQ(tracker.ratios(),
            (LaneRatios{.host = 2.0, .devices = {{.compute = 0.5}, {.copy = 3.0}}}));
}

TEST(LaneRatios, DifferByAFactorEitherWay) {
  LaneRatios ratios{.devices = {{}, {}}};
  EXPECT_FALSE(ratios.differs(0, 1.2));
  ratios.devices[1].copy = 0.8;
  EXPECT_FALSE(ratios.differs(0, 1.2));
  EXPECT_TRUE(ratios.differs(1, 1.2));
  ratios.devices[1].copy = 1.19;
  EXPECT_FALSE(ratios.differs(1, 1.2));
  ratios.devices[1].compute = 1.21;
  EXPECT_TRUE(ratios.differs(1, 1.2));
  ratios.host = 0.5;
  EXPECT_TRUE(ratios.differs(0, 1.2));
}

}  // namespace
}  // namespace moestro
