// SPDX-License-Identifier: MIT
// Predictors, the planner that acts on them, and the control that says whether to.
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "decide/ahead/predictors.h"
#include "decide/ahead/prefetch_planner.h"

namespace moestro {
namespace {

constexpr PredictorShape kShape{.moe = {.n_layer = 4, .n_expert = 8, .n_used = 2}, .depth = 2};

std::vector<ExpertId> Ids(const std::vector<uint16_t>& numbers) {
  std::vector<ExpertId> ids;
  for (const uint16_t n : numbers) ids.push_back({n});
  return ids;
}

Predictor::Seen Layer(uint16_t layer, const std::vector<ExpertId>& chosen,
                      const std::vector<ExpertId>& ahead = {}) {
  return {.layer = {layer}, .chosen = chosen, .ahead = ahead};
}

std::vector<ExpertId> Copy(std::span<const ExpertId> ids) { return {ids.begin(), ids.end()}; }

TEST(Predictors, UnknownNamesAreRefusedWithTheKnownOnes) {
  const auto made = MakePredictor({"crystal"});
  ASSERT_FALSE(made.has_value());
  EXPECT_EQ(made.error().code, Errc::kUsage);
  for (const PredictorInfo& known : KnownPredictors()) {
    EXPECT_NE(made.error().message.find(known.name), std::string::npos);
  }
}

TEST(Predictors, StackedRepeatsWhatTheRoutersSaidByDistance) {
  const auto next_router = *MakePredictor({"next-router"});
  next_router->Reset(kShape);
  EXPECT_TRUE(next_router->wants_ahead());
  const auto chosen = Ids({0, 1});
  const auto ahead = Ids({2, 3, 4, 5});
  next_router->Observe(Layer(0, chosen, ahead));
  EXPECT_EQ(Copy(next_router->Predict(1)), Ids({2, 3}));
  EXPECT_EQ(Copy(next_router->Predict(2)), Ids({4, 5}));
  next_router->Observe(Layer(1, chosen));  // nothing was evaluated
  EXPECT_TRUE(next_router->Predict(1).empty());
}

TEST(Predictors, FrequencyNamesWhatALayerAskedForMost) {
  const auto frequency = *MakePredictor({"frequency"});
  frequency->Reset(kShape);
  for (int i = 0; i < 3; ++i) {
    const auto first = Ids({0, 1});
    const auto second = i == 0 ? Ids({7, 5}) : Ids({7, 6});
    frequency->Observe(Layer(0, first));
    EXPECT_EQ(frequency->Predict(1).empty(), i == 0);
    frequency->Observe(Layer(1, second));
  }
  const auto again = Ids({0, 1});
  frequency->Observe(Layer(0, again));
  EXPECT_EQ(Copy(frequency->Predict(1)), Ids({7, 6}));
}

// A planner over a set of present experts, fed by "next-router".
class PlannerTest : public testing::Test {
 protected:
  PrefetchPlanner Planner(const PrefetchLimits& limits) {
    return {*MakePredictor({"next-router"}), kShape, limits,
            [this](ExpertKey key) { return present_.contains(key); }};
  }
  static ExpertKey Key(uint16_t layer, uint16_t expert) {
    return {.layer = {layer}, .expert = {expert}};
  }
  static std::vector<ExpertKey> Keys(std::span<const PrefetchRequest> requests, bool is_present) {
    std::vector<ExpertKey> keys;
    for (const PrefetchRequest& request : requests) {
      if (request.is_present == is_present) keys.push_back(request.key);
    }
    return keys;
  }
  std::set<ExpertKey> present_;
};

TEST_F(PlannerTest, KeepsWhatIsThereAndStopsAtTheFirstLayerThatMissesSomething) {
  PrefetchPlanner planner = Planner({.slots = {20}});
  const auto chosen = Ids({0, 1});
  const auto ahead = Ids({2, 3, 4, 5});
  present_ = {Key(1, 2), Key(1, 3)};
  planner.Observe(Layer(0, chosen, ahead));
  auto requests = planner.Requests(0);
  EXPECT_EQ(Keys(requests, true), (std::vector{Key(1, 2), Key(1, 3)}));
  EXPECT_EQ(Keys(requests, false), (std::vector{Key(2, 4), Key(2, 5)}));

  PrefetchPlanner other = Planner({.slots = {20}});
  present_ = {Key(1, 2)};
  other.Observe(Layer(0, chosen, ahead));
  requests = other.Requests(0);
  EXPECT_EQ(Keys(requests, true), std::vector{Key(1, 2)});
  EXPECT_EQ(Keys(requests, false), std::vector{Key(1, 3)});
}

TEST_F(PlannerTest, RequestsNothingTwiceAndStaysWithinItsLimits) {
  PrefetchPlanner planner = Planner({.slots = {10}, .most_unfinished = 1});
  const auto chosen = Ids({0, 1});
  const auto ahead = Ids({2, 3, 4, 5});
  planner.Observe(Layer(0, chosen, ahead));
  EXPECT_EQ(planner.Requests(0).size(), 1U);
  EXPECT_TRUE(planner.Requests(1).empty());   // one is on its way
  EXPECT_EQ(planner.Requests(0).size(), 1U);  // it has landed; the other one
  EXPECT_EQ(planner.Requests(0).size(), 1U);  // the next layer
  EXPECT_TRUE(planner.Requests(0).empty());   // three are held
  planner.Observe(Layer(1, chosen));          // their layer has run
  EXPECT_TRUE(planner.Requests(0).empty());   // and nothing is predicted
  planner.Clear();
  planner.Observe(Layer(0, chosen, ahead));
  EXPECT_EQ(planner.Requests(0).size(), 1U);
}

TEST_F(PlannerTest, KeepsScoreByDistance) {
  PrefetchPlanner planner = Planner({.slots = {20}});
  const auto first = Ids({0, 1});
  const auto ahead = Ids({2, 3, 4, 5});
  present_ = {Key(1, 2)};
  planner.Observe(Layer(0, first, ahead));
  const auto second = Ids({2, 7});
  planner.Observe(Layer(1, second));
  const auto third = Ids({5, 4});
  planner.Observe(Layer(2, third));
  const auto scores = planner.scores();
  ASSERT_EQ(scores.size(), 2U);
  EXPECT_EQ(scores[0].asked, 2U);
  EXPECT_EQ(scores[0].right, 1U);
  EXPECT_EQ(scores[0].absent, 1U);
  EXPECT_EQ(scores[0].absent_right, 0U);
  EXPECT_EQ(scores[1].right, 2U);
  EXPECT_DOUBLE_EQ(scores[1].recall(), 1.0);
  EXPECT_DOUBLE_EQ(scores[1].absent_precision(), 1.0);
}

TEST_F(PlannerTest, StopsFetchingWhatIsWrongTooOften) {
  PrefetchPlanner planner = Planner({.slots = {20}});
  const auto chosen = Ids({0, 1});
  const auto ahead = Ids({2, 3});
  for (int token = 0; token < 40; ++token) {
    planner.Observe(Layer(0, chosen, ahead));
    planner.Observe(Layer(1, chosen));  // never 2 or 3
  }
  planner.Observe(Layer(0, chosen, ahead));
  EXPECT_TRUE(planner.Requests(0).empty());
}

// A stock file gives a few layers larger experts and so a pool of their own, perhaps of one layer.
TEST_F(PlannerTest, AFullPoolStopsNobodyElse) {
  PrefetchPlanner planner = Planner(
      {.slots = {8, 2}, .pool_of = [](ExpertKey key) { return key.layer.value == 1 ? 1U : 0U; }});
  const auto chosen = Ids({0, 1});
  const auto ahead = Ids({2, 3, 4, 5});
  present_ = {Key(1, 2), Key(1, 3), Key(2, 4)};
  planner.Observe(Layer(0, chosen, ahead));
  const auto requests = planner.Requests(0);
  EXPECT_EQ(Keys(requests, true), std::vector{Key(2, 4)});  // layer 1 has no room for prefetches
  EXPECT_EQ(Keys(requests, false), std::vector{Key(2, 5)});
  EXPECT_TRUE(planner.Requests(1).empty());  // now pool 0 is full as well
  planner.Observe(Layer(1, chosen));
  planner.Observe(Layer(2, chosen, ahead));  // its two are given up
  EXPECT_EQ(planner.Requests(0).size(), 2U);
}

// Two rows predict first choices 2 and 4, second choices 3 and 2.
TEST_F(PlannerTest, RowsOfOneStepAreOneUnionByRank) {
  PrefetchPlanner planner = Planner({.slots = {20}, .most_unfinished = 8});
  const auto chosen = Ids({0, 1, 1, 5});
  const auto ahead = Ids({2, 3, 4, 2});
  planner.Observe({.layer = ExpertLayerId{0}, .rows = 2, .chosen = chosen, .ahead = ahead});
  EXPECT_EQ(Keys(planner.Requests(0), false), (std::vector{Key(1, 2), Key(1, 4), Key(1, 3)}));
  const auto next = Ids({4, 0, 4, 6});
  planner.Observe({.layer = ExpertLayerId{1}, .rows = 2, .chosen = next});
  EXPECT_EQ(planner.scores()[0].asked, 3U);  // 0, 4 and 6
  EXPECT_EQ(planner.scores()[0].predicted, 3U);
  EXPECT_EQ(planner.scores()[0].right, 1U);
}

std::vector<std::vector<ExpertId>> EveryLayer(const std::vector<ExpertId>& experts) {
  return std::vector<std::vector<ExpertId>>(kShape.moe.n_layer, experts);
}
std::optional<CopyId> Own(ExpertLayerId, ExpertId, uint32_t) { return CopyId{0}; }

TEST_F(PlannerTest, AForeseenStepIsRequestedFromItsFirstLayerOn) {
  PrefetchPlanner planner = Planner({.slots = {40}, .most_unfinished = 1, .most_foreseen = 3});
  present_ = {Key(0, 3)};
  planner.Foresee(EveryLayer(Ids({2, 3})), 1, Own);
  EXPECT_EQ(planner.look_ahead(), 0U);
  auto requests = planner.Requests(0);
  EXPECT_EQ(Keys(requests, true), std::vector{Key(0, 3)});
  EXPECT_EQ(Keys(requests, false), (std::vector{Key(0, 2), Key(1, 2), Key(1, 3)}));
  EXPECT_TRUE(planner.Requests(3).empty());
  const auto chosen = Ids({2, 5});
  planner.Observe(Layer(0, chosen));
  EXPECT_EQ(Keys(planner.Requests(2), false), std::vector{Key(2, 2)});
  for (const uint16_t layer : std::vector<uint16_t>{1, 2, 3}) planner.Observe(Layer(layer, chosen));
  EXPECT_TRUE(planner.Requests(0).empty());
  EXPECT_EQ(planner.look_ahead(), kShape.depth);  // the step has ended
  EXPECT_EQ(planner.foreseen_score().asked, 8U);
  EXPECT_EQ(planner.foreseen_score().right, 4U);
  EXPECT_EQ(planner.foreseen_score().absent, 7U);
  EXPECT_EQ(planner.foreseen_score().absent_right, 4U);
  EXPECT_EQ(planner.scores()[0].predicted, 0U);  // predictors have said nothing
}

TEST_F(PlannerTest, WhatIsForeseenWaitsForRoomInItsPoolAlone) {
  PrefetchPlanner planner =
      Planner({.slots = {8, 2},
               .pool_of = [](ExpertKey key) { return key.layer.value == 1 ? 1U : 0U; },
               .most_foreseen = 8});
  planner.Foresee(EveryLayer(Ids({2, 3})), 1, Own);
  EXPECT_EQ(Keys(planner.Requests(0), false), (std::vector{Key(0, 2), Key(0, 3)}));
  EXPECT_TRUE(planner.Requests(0).empty());
  const auto chosen = Ids({2, 3});
  planner.Observe(Layer(0, chosen));
  EXPECT_EQ(Keys(planner.Requests(0), false), (std::vector{Key(2, 2), Key(2, 3)}));
  planner.Clear();  // the step ended early
  EXPECT_EQ(planner.look_ahead(), kShape.depth);
}

TEST_F(PlannerTest, AForeseenStepNamesTheNearLayersForThePolicies) {
  PrefetchPlanner planner = Planner({.slots = {40}});
  planner.Foresee(EveryLayer(Ids({2, 3, 3, 7})), 2, Own);
  planner.Observe({.layer = ExpertLayerId{0}, .rows = 2, .chosen = Ids({1, 2, 3, 4})});
  std::vector<uint16_t> layers;
  planner.ForEachPrediction([&](ExpertLayerId layer, std::span<const ExpertId> experts) {
    layers.push_back(layer.value);
    EXPECT_EQ(Copy(experts), Ids({2, 3, 7}));
  });
  EXPECT_EQ(layers, (std::vector<uint16_t>{1, 2}));
}

TEST(MostAhead, IsWhatFitsIntoTheIdleTime) {
  EXPECT_EQ(MostAhead(1.0e-3, 1.0e-3), 1U);
  EXPECT_EQ(MostAhead(1.1e-3, 1.0e-3), 2U);  // the second is begun
  EXPECT_EQ(MostAhead(7.5e-3, 1.0e-3), 8U);
  EXPECT_EQ(MostAhead(0.1e-3, 1.0e-3), 1U);  // never none: whether it pays is asked elsewhere
  EXPECT_EQ(MostAhead(0.0, 1.0e-3), 1U);
  EXPECT_EQ(MostAhead(1.0, 1.0e-6), kMostAhead);
}

TEST(MostAhead, TakesWhateverAClockSays) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(MostAhead(1.0, 0.0), std::nullopt);  // an infinitely fast disk, or a clock that stands
  EXPECT_EQ(MostAhead(0.0, 0.0), std::nullopt);
  EXPECT_EQ(MostAhead(1.0, -1.0), std::nullopt);
  EXPECT_EQ(MostAhead(-1.0, 1.0), std::nullopt);
  EXPECT_EQ(MostAhead(1.0, kNone), std::nullopt);
  EXPECT_EQ(MostAhead(kNone, 1.0), std::nullopt);
  EXPECT_EQ(MostAhead(1.0, kInfinite), std::nullopt);
  EXPECT_EQ(MostAhead(kInfinite, kInfinite), std::nullopt);
  EXPECT_EQ(MostAhead(kInfinite, 1.0), kMostAhead);
  EXPECT_EQ(MostAhead(1e300, 1e-300), kMostAhead);
  EXPECT_EQ(MostAhead(1e-300, 1e300), 1U);
}

// A step of kShape's layers, `seconds` long without waiting, that read four experts of `read` each.
StepCost StepOf(double seconds, double read, double dense = 0.0) {
  return {.seconds = seconds + 4 * read,
          .demand_seconds = 4 * read,
          .demand_reads = 4,
          .dense_seconds = dense};
}

TEST_F(PlannerTest, FastDisksHaveMoreOnTheirWay) {
  const auto chosen = Ids({0, 1, 2, 3, 4, 5});
  const auto ahead = Ids({2, 3, 4, 5, 6, 7});
  const auto requests = [&](PrefetchPlanner& planner) {
    planner.Observe({.layer = ExpertLayerId{0}, .rows = 3, .chosen = chosen, .ahead = ahead});
    return planner.Requests(0).size();
  };
  const double layers = kShape.moe.n_layer;
  PrefetchPlanner unknown = Planner({.slots = {100}});
  EXPECT_EQ(requests(unknown), 2U);
  PrefetchPlanner slow = Planner({.slots = {100}});
  slow.StepDone(StepOf(layers * 0.9e-3, 1e-3));
  EXPECT_EQ(requests(slow), 1U);
  PrefetchPlanner fast = Planner({.slots = {100}});
  fast.StepDone(StepOf(layers * 3.9e-3, 1e-3));
  EXPECT_EQ(requests(fast), 4U);
  PrefetchPlanner fixed = Planner({.slots = {100}, .is_fixed = true});
  fixed.StepDone(StepOf(layers * 3.9e-3, 1e-3));
  EXPECT_EQ(requests(fixed), 2U);  // tokens alone say what is read
}

TEST_F(PlannerTest, FastDisksReadMoreOfAForeseenStep) {
  const auto requests = [&](double idle) {
    PrefetchPlanner planner = Planner({.slots = {100}});
    planner.StepDone(StepOf(kShape.moe.n_layer * idle, 1e-3));
    planner.Foresee(EveryLayer(Ids({2, 3})), 1, Own);
    return planner.Requests(0).size();
  };
  EXPECT_EQ(requests(0.6e-3), 4U);
  EXPECT_EQ(requests(5.5e-3), 6U);
}

TEST_F(PlannerTest, BesideADensePartTheDiskReadsWhatItsTimeAllows) {
  const double layers = kShape.moe.n_layer;
  const StepCost cost = StepOf(layers * 5e-3, 1e-3, layers * 2.5e-3);
  PrefetchPlanner planner = Planner({.slots = {20}, .expert_bytes = 1000.0});
  EXPECT_EQ(planner.bytes_beside_dense(), 0U);  // nothing is known
  planner.StepDone(cost);
  EXPECT_NEAR(static_cast<double>(planner.bytes_beside_dense()), 2500.0, 1.0);
  PrefetchPlanner fixed = Planner({.slots = {20}, .expert_bytes = 1000.0, .is_fixed = true});
  fixed.StepDone(cost);
  EXPECT_EQ(fixed.bytes_beside_dense(), 0U);
  PrefetchPlanner endless = Planner({.slots = {20}, .expert_bytes = 1000.0});
  endless.StepDone(StepOf(layers, 1e-9, layers));
  EXPECT_EQ(endless.bytes_beside_dense(), kMostAhead * 1000U);
}

// Ten layers of 1 ms; half of the time is idle unless said otherwise.
StepCost CostOfStep(double demand_seconds, uint64_t reads) {
  return {.seconds = 0.010,
          .demand_seconds = demand_seconds,
          .demand_reads = reads,
          .look_ahead_seconds = 0.0002};
}

TEST(PrefetchControl, AsksForMorePrecisionWhereTheDiskIsSlow) {
  PrefetchControl fast(10, 2.0 / 3.0);
  PrefetchControl slow(10, 2.0 / 3.0);
  PrefetchControl busy(10, 2.0 / 3.0);
  for (int i = 0; i < 50; ++i) {
    fast.StepDone(CostOfStep(0.005, 20), 5.0);  // 0.25 ms an expert fits into 0.5 ms of idle time
    slow.StepDone(CostOfStep(0.008, 2), 1.0);   // 4 ms an expert, 0.2 ms idle
    busy.StepDone(CostOfStep(0.010, 10), 1.0);  // never idle
  }
  EXPECT_LT(fast.least_precision(), 0.4);
  EXPECT_GT(slow.least_precision(), 0.85);
  EXPECT_GT(busy.least_precision(), 1.0);
  EXPECT_TRUE(fast.is_on());
}

// A drive that is hot reads at a quarter of its speed from one step to the next, and later as
// before.
TEST(PrefetchControl, FollowsADiskThatSlowsDown) {
  // 10 ms a step, of which experts take 0.25 ms each, and 1 ms each later.
  const StepCost cool = CostOfStep(0.005, 20);
  const StepCost hot{.seconds = cool.seconds + 0.015,
                     .demand_seconds = 0.020,
                     .demand_reads = 20,
                     .look_ahead_seconds = cool.look_ahead_seconds};
  PrefetchControl control(10, 2.0 / 3.0);
  for (int i = 0; i < 50; ++i) control.StepDone(cool, 5.0);
  const std::optional<size_t> ahead = control.most_ahead();
  const double precision = control.least_precision();
  PrefetchControl slow(10, 2.0 / 3.0);
  for (int i = 0; i < 50; ++i) slow.StepDone(hot, 5.0);
  ASSERT_NE(slow.most_ahead(), ahead);
  for (int i = 0; i < 3; ++i) control.StepDone(hot, 5.0);
  EXPECT_EQ(control.most_ahead(), slow.most_ahead());
  EXPECT_NEAR(control.least_precision(), slow.least_precision(), 0.01);
  for (int i = 0; i < 3; ++i) control.StepDone(cool, 5.0);
  EXPECT_EQ(control.most_ahead(), ahead);
  EXPECT_NEAR(control.least_precision(), precision, 0.01);
}

TEST(RecentMean, IsReplacedByThreeOddValuesAlone) {
  RecentMean mean;
  mean.Add(10.0);
  EXPECT_EQ(mean.value(), 10.0);
  mean.Add(100.0);
  mean.Add(100.0);
  mean.Add(10.0);
  EXPECT_LT(mean.value(), 30.0);
  RecentMean jumped;
  jumped.Add(10.0);
  for (int i = 0; i < 3; ++i) jumped.Add(100.0);
  EXPECT_EQ(jumped.value(), 100.0);
  for (int i = 0; i < 3; ++i) jumped.Add(i % 2 == 0 ? 4.0 : 6.0);
  EXPECT_NEAR(jumped.value(), 14.0 / 3.0, 1e-9);
}

TEST(PrefetchControl, StopsLookingAheadWhenItGainsNothingButTriesAgain) {
  PrefetchControl control(10, 2.0 / 3.0);
  int looks = 0;
  constexpr int kTokens = 320;
  for (int i = 0; i < kTokens; ++i) {
    const bool is_on = control.is_on();
    looks += is_on;
    StepCost cost = CostOfStep(0.0, 0);
    if (!is_on) cost.look_ahead_seconds = 0.0;
    control.StepDone(cost, 0.0);
  }
  EXPECT_LT(looks, kTokens / 8);
  EXPECT_GT(looks, kTokens / 20);
  // The text changes and predictions begin to help.
  for (int i = 0; i < 200; ++i) {
    StepCost cost = CostOfStep(0.005, 20);
    if (!control.is_on()) cost.look_ahead_seconds = 0.0;
    control.StepDone(cost, 5.0);
  }
  int looks_now = 0;
  for (int i = 0; i < 16; ++i) {
    looks_now += control.is_on();
    control.StepDone(CostOfStep(0.005, 20), 5.0);
  }
  EXPECT_EQ(looks_now, 16);
}

}  // namespace
}  // namespace moestro
