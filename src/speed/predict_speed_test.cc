// SPDX-License-Identifier: MIT
#include "speed/predict_speed.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace moestro {
namespace {

// Qwen3-30B-A3B's sizes in Q4_0.
ModelNeeds Needs(const std::string& family = "qwen3moe") {
  constexpr MoeShape kShape{.n_layer = 48, .n_expert = 128, .n_used = 8};
  constexpr uint64_t kExpertBytes = 2654208;
  const uint64_t token = kExpertBytes * kShape.n_used * kShape.n_layer;
  return {.family = family,
          .shape = kShape,
          .n_layer = 48,
          .dense = {{"q4_0", {.bytes = 900 * kMiB, .weights = 1600 * kMiB}}},
          .experts = {{"q4_0", {.bytes = token, .weights = token * 16 / 9}}},
          .expert_bytes = kExpertBytes,
          .all_experts = kExpertBytes * kShape.experts()};
}

MachineRates Rates() {
  return {.cpu = "some",
          .threads = 2,
          .memory = 16 * kGiB,
          .disk = 2e9,
          .kernels = {{.type = "q4_0", .decode = 20e9, .prompt = 100e9}}};
}

Fit FitOf(double share) {
  const uint64_t all = Needs().shape.experts();
  return {.ram = kGiB,
          .slots = static_cast<uint64_t>(share * static_cast<double>(all)),
          .experts = all};
}

Result<std::vector<BudgetSpeed>> Predict(const ModelNeeds& needs, const MachineRates& rates,
                                         const std::vector<Fit>& fits,
                                         const std::optional<SeenCaching>& seen = {}) {
  TRY(const SpeedPredictor predictor,
      SpeedPredictor::Create(needs.shape, needs.family, seen, rates));
  return predictor.Predict(needs, fits);
}

std::vector<BudgetSpeed> PredictAll(const ModelNeeds& needs, const MachineRates& rates) {
  const std::vector<Fit> fits{FitOf(0.1), FitOf(0.3), FitOf(0.6), FitOf(1.0)};
  auto speeds = Predict(needs, rates, fits);
  EXPECT_TRUE(speeds) << speeds.error().message;
  return speeds ? *std::move(speeds) : std::vector<BudgetSpeed>();
}

TEST(PredictSpeed, MoreMemoryIsFaster) {
  const std::vector<BudgetSpeed> speeds = PredictAll(Needs(), Rates());
  ASSERT_EQ(speeds.size(), 4U);
  for (size_t i = 1; i < speeds.size(); ++i) {
    EXPECT_GT(speeds[i].decode.low, speeds[i - 1].decode.low);
    EXPECT_GE(speeds[i].prompt.low, speeds[i - 1].prompt.low);
  }
}

TEST(PredictSpeed, EndsOfARangeAreNotFarApart) {
  for (const BudgetSpeed& f : PredictAll(Needs(), Rates())) {
    EXPECT_LE(f.decode.high, f.decode.low * kWidest * 1.0001);
    EXPECT_GT(f.decode.high, f.decode.low);
  }
  for (const BudgetSpeed& f : PredictAll(Needs("olmoe"), Rates())) {
    EXPECT_LE(f.decode.high, f.decode.low * kWidestOfKnown * 1.0001);
  }
}

// What a run has shown counts more than what is known of families, and is enough for a narrow
// range.
TEST(PredictSpeed, ByWhatARunHasShown) {
  const auto of = [](double missing) {
    const auto speeds = Predict(Needs(), Rates(), {FitOf(0.3)}, SeenCaching{0.2, missing});
    EXPECT_TRUE(speeds);
    return speeds ? speeds->front().decode : SpeedRange();
  };
  EXPECT_GT(of(0.1).low, 1.5 * of(0.5).high);
  EXPECT_LE(of(0.1).high, of(0.1).low * kWidestOfKnown * 1.0001);
  // A kept file may hold anything between 0 and 1.
  for (const SeenCaching& odd : {SeenCaching{0.0, 0.0}, {0.0, 1.0}, {1.0, 0.0}, {1.0, 1.0}}) {
    EXPECT_TRUE(Predict(Needs(), Rates(), {FitOf(0.3)}, odd)) << odd.share << odd.missing;
  }
}

// All in memory, a token takes what its weights and the layers take.
TEST(PredictSpeed, ResidentByTheKernelsAlone) {
  const auto seconds = ResidentSeconds(Needs(), Rates());
  ASSERT_TRUE(seconds);
  const ModelNeeds needs = Needs();
  const auto bytes =
      static_cast<double>(needs.dense.at("q4_0").bytes + needs.experts.at("q4_0").bytes);
  EXPECT_NEAR(*seconds, bytes / 20e9, 48 * 100e-6);
  EXPECT_TRUE(PredictAll(needs, Rates()).back().decode.contains(1.0 / *seconds));
}

// A state is read and written at the speed of memory.
TEST(PredictSpeed, StatesTakeTime) {
  ModelNeeds needs = Needs();
  const auto without = ResidentSeconds(needs, Rates());
  needs.state_bytes = 100 * kMiB;
  const auto with = ResidentSeconds(needs, Rates());
  ASSERT_TRUE(without && with);
  EXPECT_NEAR(*with - *without, 2.0 * 100.0 * kMiB / 20e9, 1e-6);
}

// No faster than the disk brings what even routing misses, nor slower than if nothing was kept.
TEST(PredictSpeed, BoundByTheDisk) {
  const BudgetSpeed least = PredictAll(Needs(), Rates()).front();
  const auto token = static_cast<double>(Needs().experts.at("q4_0").bytes);
  EXPECT_GT(least.decode.low, 0.5 * 2e9 / token);
  EXPECT_LT(least.decode.low, 2e9 / (token * 0.6));
  MachineRates fast = Rates();
  fast.disk *= 4.0;
  EXPECT_GT(PredictAll(Needs(), fast).front().decode.low, 2.0 * least.decode.low);
}

TEST(PredictSpeed, WhatIsNotKnownIsNamed) {
  MachineRates rates = Rates();
  rates.kernels.front().type = "q8_0";
  const auto speeds = Predict(Needs(), rates, {});
  ASSERT_FALSE(speeds);
  EXPECT_NE(speeds.error().message.find("q4_0"), std::string::npos);
  rates = Rates();
  rates.disk = 0.0;
  EXPECT_FALSE(Predict(Needs(), rates, {}));
}

TEST(PredictSpeed, AShapeOfNoModelIsRefused) {
  ModelNeeds needs = Needs();
  needs.shape = {.n_layer = 4096, .n_expert = 4096, .n_used = 4096};
  EXPECT_FALSE(Predict(needs, Rates(), {}));
}

}  // namespace
}  // namespace moestro
