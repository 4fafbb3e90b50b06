// SPDX-License-Identifier: MIT
#include "speed/device_price.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

#include "base/number.h"
#include "speed/predict_speed.h"

namespace moestro {
namespace {

// Twelve layers of Qwen3-30B-A3B in Q4_0.
ModelNeeds TwelveLayers() {
  constexpr MoeShape kShape{.n_layer = 12, .n_expert = 128, .n_used = 8};
  constexpr uint64_t kExpertBytes = 2654208;
  const uint64_t token = kExpertBytes * kShape.n_used * kShape.n_layer;
  return {.family = "qwen3moe",
          .shape = kShape,
          .n_layer = 12,
          .dense = {{"q4_0", {.bytes = 225 * kMiB, .weights = 400 * kMiB}}},
          .experts = {{"q4_0", {.bytes = token, .weights = token * 16 / 9}}},
          .expert_bytes = kExpertBytes,
          .all_experts = kExpertBytes * kShape.experts()};
}

// A card of ten times the CPU's bandwidth.
LatencyModel Card() {
  return {.border = 20e-6,
          .devices = {{.compute = {.base = 5e-6, .per_byte = 1.0 / 200e9},
                       .copy = {.base = 15e-6, .per_byte = 1.0 / 20e9},
                       .launch = 60e-6,
                       .calls = 20e-6,
                       .begin = 10e-6}}};
}

class DevicePriceTest : public ::testing::Test {
 protected:
  // By even and by recorded routing; memory holds `share` of the experts.
  std::pair<DevicePrice, DevicePrice> Price(uint64_t vram, const LatencyModel& costs,
                                            double share = 1.0) {
    const ModelNeeds needs = TwelveLayers();
    const MachineRates rates{.cpu = "some",
                             .threads = 8,
                             .memory = 64 * kGiB,
                             .disk = 1e9,
                             .kernels = {{.type = "q4_0", .decode = 20e9, .prompt = 100e9}}};
    const auto predictor = SpeedPredictor::Create(needs.shape, needs.family, {}, rates);
    EXPECT_TRUE(predictor) << predictor.error().message;
    if (!predictor) return {};
    const uint64_t all = needs.shape.experts();
    const Fit fit{.ram = kGiB,
                  .slots = static_cast<uint64_t>(share * static_cast<double>(all)),
                  .experts = all};
    const FixedMemory fixed{.dense = 225 * kMiB, .kv = 64 * kMiB, .work = 64 * kMiB};
    const auto price =
        predictor->PriceDevice(needs, fit, fixed, {.name = "card", .vram = vram, .costs = costs});
    EXPECT_TRUE(price) << price.error().message;
    return price.value_or(std::pair<DevicePrice, DevicePrice>());
  }
};

TEST_F(DevicePriceTest, MoreMemoryIsFaster) {
  const auto little = Price(600 * kMiB, Card());
  const auto some = Price(2 * kGiB, Card());
  const auto all = Price(8 * kGiB, Card());
  EXPECT_TRUE(little.first.has_dense);
  EXPECT_EQ(all.first.share, 1.0);
  EXPECT_LT(little.first.share, some.first.share);
  for (const auto of : {&std::pair<DevicePrice, DevicePrice>::first,
                        &std::pair<DevicePrice, DevicePrice>::second}) {
    EXPECT_GT((little.*of).gain.factor(), 1.1);
    EXPECT_GT((some.*of).gain.factor(), (little.*of).gain.factor());
    EXPECT_GT((all.*of).gain.factor(), (some.*of).gain.factor());
    EXPECT_EQ((all.*of).gain.without, (some.*of).gain.without);
  }
  // Popular experts are there: recorded routing gains more by a part of the experts.
  EXPECT_GT(some.second.gain.factor(), some.first.gain.factor());
}

TEST_F(DevicePriceTest, ACardWithoutRoomForTheDensePartHasExpertsAlone) {
  const auto price = Price(300 * kMiB, Card());
  EXPECT_FALSE(price.first.has_dense);
  EXPECT_GT(price.first.share, 0.0);
}

TEST_F(DevicePriceTest, ACardWithDearWaitsDoesNotPay) {
  LatencyModel dear = Card();
  dear.devices.front().launch = dear.border = 5e-3;
  EXPECT_FALSE(Price(2 * kGiB, dear).first.gain.pays());
}

TEST_F(DevicePriceTest, NoMemoryHoldsNothing) {
  const auto price = Price(kMiB, Card());
  EXPECT_EQ(price.first.share, 0.0);
  EXPECT_FALSE(price.first.has_dense);
  EXPECT_NEAR(price.first.gain.factor(), 1.0, 0.01);
}

TEST_F(DevicePriceTest, WhatMemoryLacksIsReadLess) {
  const auto price = Price(2 * kGiB, Card(), 0.25);
  EXPECT_GT(price.first.gain.factor(), 1.2);
  EXPECT_GT(price.first.gain.without, Price(2 * kGiB, Card()).first.gain.without);
}

}  // namespace
}  // namespace moestro
