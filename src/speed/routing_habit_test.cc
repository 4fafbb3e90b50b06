// SPDX-License-Identifier: MIT
#include "speed/routing_habit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "sim/replay.h"

namespace moestro {
namespace {

constexpr MoeShape kShape{.n_layer = 4, .n_expert = 64, .n_used = 8};

// Of the experts of a token, the share that the token before had, too.
double ShareAgain(const Trace& trace) {
  uint64_t again = 0;
  uint64_t all = 0;
  for (size_t t = 1; t < trace.tokens(); ++t) {
    for (uint32_t l = 0; l < kShape.n_layer; ++l) {
      for (const ExpertId e : trace.experts(t, l)) {
        again += std::ranges::contains(trace.experts(t - 1, l), e);
        ++all;
      }
    }
  }
  return static_cast<double>(again) / static_cast<double>(all);
}

TEST(RoutingHabit, EvenRoutingChoosesAnyExpert) {
  const auto trace = TraceOf(kShape, kEvenRouting, 400, 1);
  ASSERT_TRUE(trace) << trace.error().message;
  EXPECT_NEAR(ShareAgain(*trace), 8.0 / 64.0, 0.01);
  std::vector<uint64_t> uses(kShape.n_expert);
  for (size_t t = 0; t < trace->tokens(); ++t) {
    for (const ExpertId e : trace->experts(t, 0)) ++uses[e.value];
  }
  EXPECT_GT(std::ranges::min(uses), 25U);  // 50 each
  EXPECT_LT(std::ranges::max(uses), 80U);
}

TEST(RoutingHabit, RecordedRoutingComesBack) {
  const auto trace = TraceOf(kShape, kRecordedRouting, 400, 1);
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
  const auto of = [](uint64_t seed) { return *TraceOf(kShape, kRecordedRouting, 20, seed); };
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

}  // namespace
}  // namespace moestro
