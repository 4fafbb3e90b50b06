// SPDX-License-Identifier: MIT
#include "decide/devices/way_planner.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace moestro {
namespace {

constexpr uint64_t kBytesOfExpert = 1'000'000;

// An expert takes 10 ms on the CPU, 1 ms on the device and 100 ms from the disk; a border, a launch
// and the wait for a router take 3 ms each.
LatencyModel ModelWithDisk() {
  return {.host = {.per_byte = 10e-9},
          .disk = {.per_byte = 100e-9},
          .border = 3e-3,
          .devices = {{.compute = {.per_byte = 1e-9}, .launch = 3e-3}}};
}

// Two layers of two experts, of which a row uses one. The dense part takes 20 ms here, 2 ms there.
WayCase WayOfFour(uint64_t slots) {
  return {.experts = {.n_layers = 2,
                      .n_expert = 2,
                      .n_used = 1,
                      .bytes = kBytesOfExpert,
                      .slots = slots,
                      .most = static_cast<uint32_t>(slots / 2)},
          .dense_alone = 20e-3,
          .dense = 2e-3};
}

TEST(PriceWays, AddsUpByHand) {
  const WayPrices prices = PriceWays(WayOfFour(2), ModelWithDisk());
  EXPECT_NEAR(prices.Of(DeviceWay::kCpu), 40e-3, 1e-9);
  EXPECT_NEAR(prices.Of(DeviceWay::kDense), 34e-3, 1e-9);  // two waits, two borders
  EXPECT_NEAR(prices.Of(DeviceWay::kHot), 25e-3, 1e-9);    // as ChooseWhole() has it
  EXPECT_NEAR(prices.Of(DeviceWay::kWhole), 19e-3, 1e-9);
  EXPECT_EQ(prices.best_there(), DeviceWay::kWhole);
  EXPECT_FALSE(prices.leaves_device(0.0));
}

TEST(PriceWays, ADearDeviceIsLeft) {
  LatencyModel dear = ModelWithDisk();
  dear.border = dear.devices.front().launch = 30e-3;
  const WayPrices prices = PriceWays(WayOfFour(0), dear);
  EXPECT_NEAR(prices.Of(DeviceWay::kCpu), 40e-3, 1e-9);
  EXPECT_NEAR(prices.Of(DeviceWay::kDense), 142e-3, 1e-9);
  EXPECT_TRUE(std::isinf(prices.Of(DeviceWay::kHot)));  // without slots
  EXPECT_TRUE(prices.leaves_device(0.2));
  EXPECT_TRUE(prices.leaves_device(0.7));
  EXPECT_FALSE(prices.leaves_device(0.75));
}

TEST(ExpertsAlone, TheDensePartComesAndSharedMemoryIsFree) {
  EXPECT_EQ(ExpertsAlone({.experts = 10, .dense_there = 4}), 6U);
  EXPECT_EQ(ExpertsAlone({.experts = 3, .dense_there = 4}), 0U);
  // Slots of a GPU that shares the CPU's memory are a second copy, or experts that the CPU lacks.
  EXPECT_EQ(ExpertsAlone({.experts = 10, .dense_there = 4, .shared = 9}), 15U);
  EXPECT_EQ(ExpertsAlone({.experts = 0, .dense_there = 4, .shared = 4}), 0U);
}

TEST(PriceWays, WithTheDensePartInMemoryNobodyWaitsForRouters) {
  LatencyModel model = ModelWithDisk();
  model.border = 0.0;
  WayCase of = WayOfFour(4);
  of.dense = of.dense_alone;
  const WayPrices prices = PriceWays(of, model);
  EXPECT_TRUE(std::isinf(prices.Of(DeviceWay::kDense)));
  EXPECT_TRUE(std::isinf(prices.Of(DeviceWay::kWhole)));
  EXPECT_NEAR(prices.Of(DeviceWay::kHot), 20e-3 + 2 * 4e-3, 1e-9);
}

TEST(PriceWays, ExpertsThatNobodyHoldsAreRead) {
  WayCase of = WayOfFour(2);
  of.in_memory_alone = 0.25;
  of.in_memory = 0.5;
  const WayPrices prices = PriceWays(of, ModelWithDisk());
  EXPECT_NEAR(prices.Of(DeviceWay::kCpu), 40e-3 + 150e-3, 1e-9);
  EXPECT_NEAR(prices.Of(DeviceWay::kDense), 34e-3 + 100e-3, 1e-9);
  EXPECT_NEAR(prices.Of(DeviceWay::kHot), 25e-3, 1e-9);  // memory and device hold all
}

TEST(PriceWays, ACpuThatSlowsDownBesideTheDeviceIsNotSlowAlone) {
  LatencyModel beside = ModelWithDisk();
  beside.host_beside = 4.0;
  EXPECT_EQ(PriceWays(WayOfFour(2), beside).Of(DeviceWay::kCpu),
            PriceWays(WayOfFour(2), ModelWithDisk()).Of(DeviceWay::kCpu));
}

TEST(DenseSeconds, GrowWithBytesAndLayers) {
  const LatencyModel model = ModelWithDisk();
  EXPECT_GT(DenseSecondsOnCpu(kBytesOfExpert, 1, model), 10e-3);
  EXPECT_GT(DenseSecondsOnCpu(kBytesOfExpert, 2, model),
            DenseSecondsOnCpu(kBytesOfExpert, 1, model));
  EXPECT_NEAR(DenseSecondsOnDevice(kBytesOfExpert, 4, model), 1e-3,
              1e-9);  // launches of no seconds
}

void NoteWindow(WayWatch& watch, double seconds) {
  for (size_t i = 0; i < WayWatch::kTokens; ++i) {
    EXPECT_EQ(watch.Note(seconds), i + 1 == WayWatch::kTokens);
  }
}

TEST(WayWatch, TheFirstWindowsDoNotCount) {
  WayWatch watch;
  for (size_t i = 0; i < WayWatch::kFirstWindows; ++i) {
    NoteWindow(watch, 1.0);
    EXPECT_FALSE(watch.is_slower_than(0.5));
  }
  NoteWindow(watch, 1.0);
  EXPECT_TRUE(watch.is_slower_than(0.5));
  EXPECT_TRUE(watch.is_slower_than(0.9));
  EXPECT_FALSE(watch.is_slower_than(0.95));  // a tenth is allowed
}

TEST(WayWatch, StallsDoNotCount) {
  WayWatch watch;
  for (size_t i = 0; i < WayWatch::kTokens * (WayWatch::kFirstWindows + 1); ++i) {
    watch.Note(i % 3 == 0 ? 100.0 : 1.0);
  }
  ASSERT_TRUE(watch.median());
  EXPECT_EQ(*watch.median(), 1.0);
  EXPECT_FALSE(watch.is_slower_than(1.0));
}

}  // namespace
}  // namespace moestro
