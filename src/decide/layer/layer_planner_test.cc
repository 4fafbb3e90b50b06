// SPDX-License-Identifier: MIT
#include "decide/layer/layer_planner.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace moestro {
namespace {

constexpr RowKind kD = RowKind::kDecode;
constexpr RowKind kP = RowKind::kPrompt;

Routing RoutingOf(const std::vector<uint16_t>& experts, uint32_t used) {
  Routing routing{.n_tokens = static_cast<uint32_t>(experts.size()) / used,
                  .n_used = used,
                  .experts = {},
                  .weights = {}};
  for (const uint16_t e : experts) {
    routing.experts.push_back(ExpertId{e});
    routing.weights.push_back(static_cast<float>(routing.weights.size()));
  }
  return routing;
}

std::vector<uint16_t> ExpertsOf(const LayerPlan& plan) {
  std::vector<uint16_t> experts;
  for (const PlannedExpert& e : plan.experts) experts.push_back(e.key.expert.value);
  return experts;
}

TEST(PlanLayer, PresentExpertsComeFirstOtherwiseByFirstAppearance) {
  const Routing routing = RoutingOf({5, 3, 3, 9, 5, 1}, 2);
  const std::vector<RowKind> kinds(3, kD);
  const LayerPlan plan = PlanLayer(ExpertLayerId{2}, routing, kinds,
                                   [](ExpertKey key) { return key.expert.value >= 9; });
  EXPECT_EQ(ExpertsOf(plan), (std::vector<uint16_t>{9, 5, 3, 1}));
  EXPECT_EQ(plan.layer, ExpertLayerId{2});
  EXPECT_TRUE(plan.experts[0].is_present);
  EXPECT_FALSE(plan.experts[1].is_present);
}

TEST(PlanLayer, PairsOfAnExpertAreNeighboursAndLeadBackToRouterOrder) {
  const Routing routing = RoutingOf({5, 3, 3, 9, 5, 1}, 2);
  const std::vector<RowKind> kinds(3, kD);
  const LayerPlan plan =
      PlanLayer(ExpertLayerId{0}, routing, kinds, [](ExpertKey) { return false; });
  ASSERT_EQ(plan.row_of.size(), 6U);
  for (const PlannedExpert& expert : plan.experts) {
    for (uint32_t i = 0; i < expert.n_pairs; ++i) {
      const uint32_t row = plan.row_of[expert.first_pair + i];
      const auto of_row = routing.experts_of(row);
      EXPECT_NE(std::ranges::find(of_row, expert.key.expert), of_row.end());
    }
  }
  for (uint32_t i = 0; i < routing.experts.size(); ++i) {
    EXPECT_EQ(plan.row_of[plan.pair_of[i]], i / 2);
  }
  EXPECT_EQ(plan.weights, routing.weights);
}

// Nothing of the layer before is left in a plan that is given again.
TEST(LayerPlanner, APlanThatIsGivenAgainIsAsANewOne) {
  const auto is_present = [](ExpertKey key) { return key.expert.value >= 9; };
  LayerPlanner planner;
  LayerPlan again;
  planner.Plan(ExpertLayerId{7}, RoutingOf({1, 2, 3, 4, 5, 6}, 3), std::vector<RowKind>(2, kP),
               is_present, {}, again);
  again.skipped.push_back({});
  again.n_replaced = 3;
  again.learned.push_back(ExpertId{1});
  again.moved_back.push_back({});
  again.predicted.host = again.took.disk = 1.0;
  again.took.devices.push_back({});
  const Routing routing = RoutingOf({5, 3, 3, 9}, 2);
  const std::vector<RowKind> kinds(2, kD);
  planner.Plan(ExpertLayerId{2}, routing, kinds, is_present, {}, again);
  const LayerPlan fresh = PlanLayer(ExpertLayerId{2}, routing, kinds, is_present);
  EXPECT_EQ(again.layer, fresh.layer);
  EXPECT_EQ(again.n_rows, fresh.n_rows);
  EXPECT_EQ(again.n_used, fresh.n_used);
  EXPECT_EQ(ExpertsOf(again), ExpertsOf(fresh));
  EXPECT_EQ(again.row_of, fresh.row_of);
  EXPECT_EQ(again.pair_of, fresh.pair_of);
  EXPECT_EQ(again.weights, fresh.weights);
  EXPECT_TRUE(again.skipped.empty() && again.learned.empty() && again.moved_back.empty());
  EXPECT_EQ(again.n_replaced, 0U);
  EXPECT_EQ(again.predicted.host + again.took.disk, 0.0);
  EXPECT_TRUE(again.took.devices.empty());
}

// In router order, whatever the order of the plan's experts.
TEST(PlanLayer, WeightsAreScaledByTheirExperts) {
  const Routing routing = RoutingOf({5, 3, 3, 9}, 2);
  LayerPlan plan = PlanLayer(ExpertLayerId{0}, routing, std::vector<RowKind>(2, kD),
                             [](ExpertKey key) { return key.expert.value == 9; });
  std::vector<float> factors(10, 0.0F);
  factors[5] = 2.0F;
  factors[3] = 10.0F;
  factors[9] = 100.0F;
  ScaleWeights(factors, plan);
  EXPECT_EQ(plan.weights, (std::vector<float>{0.0F, 10.0F, 20.0F, 300.0F}));
}

TEST(PlanLayer, AnExpertIsADecodesIfAnyOfItsRowsDecodes) {
  const Routing routing = RoutingOf({5, 3, 3, 9}, 2);
  const std::vector<RowKind> kinds = {kP, kD};
  const LayerPlan plan =
      PlanLayer(ExpertLayerId{0}, routing, kinds, [](ExpertKey) { return true; });
  ASSERT_EQ(ExpertsOf(plan), (std::vector<uint16_t>{5, 3, 9}));
  EXPECT_EQ(plan.experts[0].use, Use::kPrefill);
  EXPECT_EQ(plan.experts[1].use, Use::kDecode);
  EXPECT_EQ(plan.experts[2].use, Use::kDecode);
}

TEST(PlanReadAhead, OnlyWhenNearlyAllExpertsWillBeNeeded) {
  // With 2 of 8 experts a row, six rows leave out 18 %, five rows 24 %.
  EXPECT_TRUE(PlanReadAhead(ExpertLayerId{0}, 3, 8, 2, 5).empty());
  const std::vector<ExpertKey> keys = PlanReadAhead(ExpertLayerId{0}, 3, 8, 2, 6);
  ASSERT_EQ(keys.size(), 8U);
  EXPECT_EQ(keys.front(), (ExpertKey{.layer = ExpertLayerId{1}, .expert = ExpertId{0}}));
  EXPECT_TRUE(PlanReadAhead(ExpertLayerId{2}, 3, 8, 2, 100).empty());  // there is no next layer
}

}  // namespace
}  // namespace moestro
