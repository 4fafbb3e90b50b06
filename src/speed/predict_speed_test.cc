// SPDX-License-Identifier: MIT
#include "speed/predict_speed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/number.h"
#include "sim/replay.h"

namespace moestro {
namespace {

constexpr MoeShape kTracedShape{.n_layer = 4, .n_expert = 64, .n_used = 8};

// Of the experts of a token, the share that the token before had, too.
double ShareAgain(const Trace& trace) {
  uint64_t again = 0;
  uint64_t all = 0;
  for (size_t t = 1; t < trace.tokens(); ++t) {
    for (uint32_t l = 0; l < kTracedShape.n_layer; ++l) {
      for (const ExpertId e : trace.experts(t, l)) {
        again += std::ranges::contains(trace.experts(t - 1, l), e);
        ++all;
      }
    }
  }
  return static_cast<double>(again) / static_cast<double>(all);
}

TEST(RoutingHabit, EvenRoutingChoosesAnyExpert) {
  const auto trace = TraceOf(kTracedShape, kEvenRouting, 400, 1);
  ASSERT_TRUE(trace) << trace.error().message;
  EXPECT_NEAR(ShareAgain(*trace), 8.0 / 64.0, 0.01);
  std::vector<uint64_t> uses(kTracedShape.n_expert);
  for (size_t t = 0; t < trace->tokens(); ++t) {
    for (const ExpertId e : trace->experts(t, 0)) ++uses[e.value];
  }
  EXPECT_GT(std::ranges::min(uses), 25U);  // 50 each
  EXPECT_LT(std::ranges::max(uses), 80U);
}

TEST(RoutingHabit, RecordedRoutingComesBack) {
  const auto trace = TraceOf(kTracedShape, kRecordedRouting, 400, 1);
  ASSERT_TRUE(trace) << trace.error().message;
  EXPECT_GT(ShareAgain(*trace), 2.0 * 8.0 / 64.0);
}

TEST(RoutingHabit, ThreeQuartersAreForeseen) {
  const auto trace = TraceOf({.n_layer = 3, .n_expert = 512, .n_used = 8}, kEvenRouting, 400, 1);
  ASSERT_TRUE(trace) << trace.error().message;
  uint64_t right = 0;
  for (size_t t = 0; t < trace->tokens(); ++t) {
    for (const size_t l : {0U, 1U}) {
      for (const ExpertId e : trace->predicted(t, l, 1)) {
        right += std::ranges::contains(trace->experts(t, l + 1), e);
      }
    }
  }
  EXPECT_NEAR(static_cast<double>(right) / (400 * 2 * 8), kForeseenShare, 0.02);
}

// The table in docs/plan.md: hits of a cache that keeps the experts used last, of OLMoE's shape.
TEST(RoutingHabit, CachesAsTheRecordedTextDid) {
  struct Row {
    double share;  // of the experts in memory
    double made_up;
    double even;
  };
  const MoeShape olmoe{.n_layer = 16, .n_expert = 64, .n_used = 8};
  const auto hits = [&](const RoutingHabit& habit, double share) {
    const auto trace = TraceOf(olmoe, habit, 299, 1);
    EXPECT_TRUE(trace);
    const auto slots = static_cast<uint64_t>(share * olmoe.experts());
    const auto replayed = Replay(
        *trace, {.slots = slots, .policy = {.name = "lru"}, .expert_bytes = 1, .count_from = 112});
    EXPECT_TRUE(replayed);
    return replayed ? replayed->hit_rate() : 0.0;
  };
  for (const Row& row : {Row{0.15, 0.46, 0.12}, Row{0.25, 0.62, 0.23}, Row{0.4, 0.74, 0.33},
                         Row{0.55, 0.84, 0.51}, Row{0.7, 0.90, 0.68}, Row{0.85, 0.96, 0.84}}) {
    EXPECT_NEAR(hits(kRecordedRouting, row.share), row.made_up, 0.03) << row.share;
    EXPECT_NEAR(hits(kEvenRouting, row.share), row.even, 0.03) << row.share;
  }
}

// Between the two habits that are known, and with more of it than even routing lacks.
TEST(RoutingHabit, FoundByWhatARunLacked) {
  const MoeShape shape{.n_layer = 8, .n_expert = 64, .n_used = 8};
  const uint64_t slots = shape.experts() / 4;
  double skew = 3.0;
  for (const double missing : {0.1, 0.3, 0.5}) {
    const auto habit = HabitThatMisses(shape, slots, missing);
    ASSERT_TRUE(habit) << habit.error().message;
    EXPECT_GT(habit->skew, 0.0);
    EXPECT_LT(habit->skew, skew) << missing;
    skew = habit->skew;
    const auto trace = TraceOf(shape, *habit, 256, 7);
    ASSERT_TRUE(trace);
    const auto replayed = Replay(
        *trace,
        {.slots = slots, .policy = {.name = "next-use"}, .expert_bytes = 1, .count_from = 16});
    ASSERT_TRUE(replayed);
    EXPECT_NEAR(1.0 - replayed->hit_rate(), missing, 0.05) << "another text";
  }
  EXPECT_EQ(HabitThatMisses(shape, slots, 0.99)->skew, 0.0);
}

// Sixteen tokens of 8 in 256 fill a third of such slots: what a start lacks is not what a run
// lacks.
TEST(RoutingHabit, ManySlotsAreFullBeforeAnythingCounts) {
  const MoeShape shape{.n_layer = 4, .n_expert = 256, .n_used = 8};
  const uint64_t slots = shape.experts() * 3 / 5;
  const auto trace = TraceOf(shape, kRecordedRouting, 400, 7);
  ASSERT_TRUE(trace);
  const auto replayed = Replay(
      *trace,
      {.slots = slots, .policy = {.name = "next-use"}, .expert_bytes = 1, .count_from = 200});
  ASSERT_TRUE(replayed);
  const auto habit = HabitThatMisses(shape, slots, 1.0 - replayed->hit_rate());
  ASSERT_TRUE(habit);
  EXPECT_NEAR(habit->skew, kRecordedRouting.skew, 0.25);
}

TEST(RoutingHabit, TheSameForTheSameSeed) {
  const auto of = [](uint64_t seed) { return *TraceOf(kTracedShape, kRecordedRouting, 20, seed); };
  EXPECT_EQ(of(3), of(3));
  EXPECT_NE(of(3), of(4));
}

// The rarest of thousands would be drawn once in a hundred thousand times.
TEST(RoutingHabit, AllExpertsOfALayerMayBeUsed) {
  const MoeShape all{.n_layer = 1, .n_expert = 4096, .n_used = 4096};
  const auto trace = TraceOf(all, kRecordedRouting, 5, 1);
  ASSERT_TRUE(trace) << trace.error().message;
  EXPECT_EQ(trace->tokens(), 5U);
  EXPECT_EQ(trace->info().depth, 0U) << "no layer follows";
}

TEST(RoutingHabit, AnImpossibleShapeIsAnError) {
  EXPECT_FALSE(TraceOf({.n_layer = 1, .n_expert = 4, .n_used = 5}, kEvenRouting, 5, 1));
}

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
