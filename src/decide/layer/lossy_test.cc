// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "decide/ahead/predictors.h"
#include "decide/ahead/prefetch_planner.h"
#include "decide/layer/importance.h"
#include "decide/layer/layer_planner.h"
#include "decide/layer/layer_protocol.h"
#include "decide/layer/lossy_chooser.h"
#include "decide/layer/lossy_options.h"
#include "decide/layer/router.h"
#include "decide/slots/resident_model.h"

namespace moestro {
namespace {

constexpr ExpertLayerId kLayer{0};

ExpertKey Own(uint16_t expert) { return {.layer = kLayer, .expert = {expert}}; }
ExpertKey Low(uint16_t expert) { return {.layer = kLayer, .expert = {expert}, .copy = kLowCopy}; }

RouterSpec Router(bool renormalise = true) {
  return {.n_expert = 8, .n_used = 4, .renormalise = renormalise};
}

class LossyChoices : public testing::Test {
 protected:
  // One row whose experts 0, 1, 2, 3 weigh 0.5, 0.3, 0.15 and 0.05; 4 to 7 come after them.
  static Routing OneRow(uint32_t candidates = 0) {
    const std::vector<float> p = {0.5F, 0.3F, 0.15F, 0.05F, 0.04F, 0.03F, 0.02F, 0.01F};
    std::vector<float> logits;
    for (const float x : p) logits.push_back(std::log(x));
    return Route(Router(), logits, {}, candidates);
  }
  LayerPlan Plan(const LossyOptions& options, bool has_low = true,
                 RowKind kind = RowKind::kDecode) {
    const RouterSpec router = Router();
    LossyChooser chooser(options, router, has_low, nullptr);
    Routing routing = OneRow(chooser.candidates());
    const auto is_present = [this](ExpertKey key) { return present_.contains(key); };
    const uint32_t replaced = chooser.Prefer(kLayer, {&kind, 1}, is_present, routing);
    LayerPlan plan = PlanLayer(kLayer, routing, {&kind, 1}, is_present,
                               chooser.NeedsOf(kLayer, routing, {&kind, 1}));
    plan.n_replaced = replaced;
    return plan;
  }
  static std::set<ExpertKey> Keys(const LayerPlan& plan) {
    std::set<ExpertKey> keys;
    for (const PlannedExpert& expert : plan.experts) keys.insert(expert.key);
    return keys;
  }
  static std::set<uint16_t> Skipped(const LayerPlan& plan) {
    std::set<uint16_t> skipped;
    for (const SkippedExpert& expert : plan.skipped) skipped.insert(expert.expert.value);
    return skipped;
  }

  std::set<ExpertKey> present_;
};

TEST(Unimportance, IsTheShareOfWhatIsMoreImportant) {
  std::vector<float> s(4);
  Unimportance(std::vector<float>{0.2F, 0.4F, 0.1F, 0.3F}, s);
  EXPECT_FLOAT_EQ(s[1], 0.0F);
  EXPECT_FLOAT_EQ(s[3], 0.4F);
  EXPECT_FLOAT_EQ(s[0], 0.7F);
  EXPECT_FLOAT_EQ(s[2], 0.9F);
  Unimportance(std::vector<float>{0.0F, 0.0F}, std::span(s).first(2));
  EXPECT_EQ(s[0], 0.0F);
}

TEST(Importance, NormsChangeTheOrder) {
  const auto norms = std::make_shared<const ExpertNorms>(
      ExpertNorms{.shape = {1, 3, 2}, .values = {1.0F, 5.0F, 2.0F}});
  const auto importance = MakeImportance("score-norm", norms);
  const std::vector<ExpertId> experts = {{0}, {1}};
  std::vector<float> out(2);
  importance->Contributions(kLayer, experts, std::vector<float>{0.6F, 0.4F}, out);
  EXPECT_GT(out[1], out[0]);
  MakeImportance("score", nullptr)
      ->Contributions(kLayer, experts, std::vector<float>{0.6F, 0.4F}, out);
  EXPECT_GT(out[0], out[1]);
}

// Of rows so far the second expert was unimportant; of this token's it is not.
TEST_F(LossyChoices, WhatIsPredictedIsNeededByThisTokensWeights) {
  const RouterSpec router = Router();
  LossyChooser chooser({.t1 = 0.6, .t2 = 0.9}, router, true, nullptr);
  const std::vector<ExpertId> experts = {{0}, {1}, {2}, {3}};
  const std::vector<float> steep = {0.7F, 0.25F, 0.04F, 0.01F};
  const std::vector<float> flat = {0.3F, 0.25F, 0.25F, 0.2F};
  Routing routing{.n_tokens = 1, .n_used = 4, .experts = experts, .weights = steep};
  constexpr RowKind kDecode = RowKind::kDecode;
  for (int i = 0; i < 50; ++i) chooser.NeedsOf(kLayer, routing, {&kDecode, 1});
  EXPECT_EQ(chooser.UsualNeed(kLayer, 1), Need::kLow);
  EXPECT_EQ(chooser.NeedsOfPredicted(kLayer, experts, flat),
            (std::vector{Need::kOwn, Need::kOwn, Need::kOwn, Need::kLow}));
  EXPECT_EQ(chooser.NeedsOfPredicted(kLayer, experts, steep),
            (std::vector{Need::kOwn, Need::kLow, Need::kSkip, Need::kSkip}));
  EXPECT_EQ(chooser.UsualNeed(kLayer, 1), Need::kLow);  // predictions teach it nothing
}

// s is 0, 0.5, 0.8 and 0.95 for the four.
TEST_F(LossyChoices, OnAMissTheUnimportantOnesAreCoarsenedOrSkipped) {
  const LayerPlan plan = Plan({.t1 = 0.5, .t2 = 0.9});
  EXPECT_EQ(Keys(plan), (std::set<ExpertKey>{Own(0), Own(1), Low(2)}));
  EXPECT_EQ(Skipped(plan), std::set<uint16_t>{3});
  EXPECT_EQ(plan.pair_of[3], kNoPair);
  EXPECT_EQ(plan.row_of.size(), 3U);
  EXPECT_FLOAT_EQ(plan.weights[0], 0.5F);
}

TEST_F(LossyChoices, AResidentOwnCopyAlwaysServes) {
  present_ = {Own(2), Own(3)};
  EXPECT_EQ(Keys(Plan({.t1 = 0.5, .t2 = 0.9})),
            (std::set<ExpertKey>{Own(0), Own(1), Own(2), Own(3)}));
}

TEST_F(LossyChoices, AResidentLowCopyServesWhereLowWillDo) {
  present_ = {Low(0), Low(2), Low(3)};
  const LayerPlan plan = Plan({.t1 = 0.5, .t2 = 0.9});
  // 0 is too important for its low copy; 3 would be skipped, but its low copy costs nothing.
  EXPECT_EQ(Keys(plan), (std::set<ExpertKey>{Own(0), Own(1), Low(2), Low(3)}));
  EXPECT_TRUE(plan.skipped.empty());
}

TEST_F(LossyChoices, WithoutLowCopiesNothingIsCoarsened) {
  const LayerPlan plan = Plan({.drop_below = 0.1}, false);
  EXPECT_EQ(Keys(plan), (std::set<ExpertKey>{Own(0), Own(1), Own(2)}));
  ASSERT_EQ(plan.skipped.size(), 1U);
  EXPECT_EQ(plan.skipped[0].need, Need::kDrop);
}

TEST_F(LossyChoices, RescalingKeepsTheRowsSum) {
  const LayerPlan plan = Plan({.drop_below = 0.2, .rescales = true}, false);
  EXPECT_EQ(Skipped(plan), (std::set<uint16_t>{2, 3}));
  EXPECT_NEAR(plan.weights[0], 0.5 / 0.8, 1e-6);
  EXPECT_NEAR(plan.weights[1], 0.3 / 0.8, 1e-6);
}

TEST_F(LossyChoices, PromptRowsGetEverythingInFull) {
  const LossyOptions all{.t1 = 0.1, .t2 = 0.2, .drop_below = 0.5, .prefer_resident = 1.0};
  present_ = {Own(4), Own(5), Low(1)};
  const LayerPlan plan = Plan(all, true, RowKind::kPrompt);
  EXPECT_EQ(Keys(plan), (std::set<ExpertKey>{Own(0), Own(1), Own(2), Own(3)}));
  EXPECT_EQ(plan.n_replaced, 0U);
}

TEST_F(LossyChoices, ResidentsReplaceAbsentOnesOfNearlyTheSameScore) {
  present_ = {Own(4), Own(7)};
  // ln 0.05 - ln 0.04 is 0.22 of a range of 3.91; ln 0.05 - ln 0.01 is 1.61.
  LayerPlan plan = Plan({.prefer_resident = 0.06}, false);
  EXPECT_EQ(Keys(plan), (std::set<ExpertKey>{Own(0), Own(1), Own(2), Own(4)}));
  EXPECT_EQ(plan.n_replaced, 1U);
  EXPECT_NEAR(plan.weights[3], 0.04 / 0.99, 1e-5);
  EXPECT_NEAR(plan.weights[0], 0.5 / 0.99, 1e-5);
  EXPECT_EQ(Plan({.prefer_resident = 0.05}, false).n_replaced, 0U);
  // The kept ones never give way.
  plan = Plan({.prefer_resident = 1.0, .keep = 3}, false);
  EXPECT_EQ(Keys(plan), (std::set<ExpertKey>{Own(0), Own(1), Own(2), Own(4)}));
}

// Experts that a table names are those of the model; a little step, whose rows are only drafts,
// takes what is there.
TEST_F(LossyChoices, OnlyALittleStepReplacesExpertsThatATableNames) {
  RouterSpec router = Router();
  router.gating = Gating::kSigmoid;
  const std::vector<float> logits = {-9.0F, -8.0F, 9.0F, 8.0F, 7.0F, 6.0F, 5.0F, 4.0F};
  const std::vector<int32_t> named = {0, 1, 2, 3};
  LossyChooser chooser({.prefer_resident = 1.0, .keep = 0}, router, false, nullptr);
  constexpr RowKind kDecode = RowKind::kDecode;
  const auto is_present = [](const ExpertKey& key) { return key.expert.value > 3; };
  const auto replaced = [&](const LittleStep& little) {
    Routing routing;
    class Router follower;
    follower.Follow(router, logits, named, chooser.candidates(), routing);
    chooser.BeginStep(little);
    return chooser.Prefer(kLayer, {&kDecode, 1}, is_present, routing);
  };
  EXPECT_EQ(replaced({}), 0U);
  EXPECT_GT(replaced({.prefers_resident = true}), 0U);
}

// The strongest need of several rows counts.
TEST_F(LossyChoices, AnExpertThatOneRowNeedsInFullRunsInFullForAll) {
  const Routing routing{.n_tokens = 2,
                        .n_used = 2,
                        .experts = {{0}, {1}, {1}, {2}},
                        .weights = {0.9F, 0.1F, 0.9F, 0.1F}};
  const std::vector<RowKind> kinds(2, RowKind::kDecode);
  const RowNeeds needs{.needs = {Need::kOwn, Need::kLow, Need::kOwn, Need::kSkip}, .has_low = true};
  const LayerPlan plan = PlanLayer(kLayer, routing, kinds, [](ExpertKey) { return false; }, needs);
  EXPECT_EQ(Keys(plan), (std::set<ExpertKey>{Own(0), Own(1)}));
  EXPECT_EQ(Skipped(plan), std::set<uint16_t>{2});
}

// Holds nothing, and remembers what it was to read ahead.
class Wishes final : public ExpertHolder {
 public:
  bool contains(ExpertKey) const override { return false; }
  void BeginLayer(ExpertLayerId) override {}
  void Predict(ExpertLayerId, std::span<const ExpertId>) override {}
  void LearnPrompt(const LayerPlan&) override {}
  bool Prefetch(ExpertKey key) override {
    prefetched.insert(key);
    return true;
  }
  void Withdraw(ExpertKey) override {}
  void Release(ExpertKey) override {}
  bool is_complete(ExpertKey) const override { return true; }

  std::set<ExpertKey> prefetched;
};

// As the average row needs them the second expert would be read in full; this token's would not.
TEST_F(LossyChoices, APrefetchReadsTheCopyThatThisTokenNeeds) {
  const RouterSpec router{.n_expert = 8, .n_used = 2, .renormalise = true};
  const PredictorShape shape{.moe = {.n_layer = 2, .n_expert = 8, .n_used = 2}, .depth = 1};
  const std::vector<float> flat = {0.5F, 0.5F};
  const std::vector<float> steep = {0.8F, 0.2F};
  const std::vector<ExpertId> experts = {{4}, {5}};
  constexpr RowKind kDecode = RowKind::kDecode;
  const auto prefetched = [&](std::span<const float> predicted_weights) {
    LossyChooser chooser({.t1 = 0.6, .t2 = 0.9, .is_reproducible = false}, router, true, nullptr);
    Wishes wishes;
    PrefetchPlanner planner(*MakePredictor({"next-router"}), shape,
                            {.slots = {40}, .is_fixed = true}, [](ExpertKey) { return false; });
    LayerProtocol protocol(planner, wishes, 2, {.chooser = &chooser});
    Routing flat_row{.n_tokens = 1, .n_used = 2, .experts = experts, .weights = flat};
    for (int step = 0; step < 30; ++step) {
      protocol.BeginStep({});
      for (uint16_t l = 0; l < 2; ++l) {
        Routing routing = flat_row;
        const bool is_first = l == 0;
        const std::span<const ExpertId> ahead = is_first ? experts : std::span<const ExpertId>();
        const std::span<const float> weights =
            is_first && step == 29 ? predicted_weights : std::span<const float>();
        if (step == 29) wishes.prefetched.clear();
        protocol.AfterRouting({ExpertLayerId{l}, routing, {&kDecode, 1}, ahead, weights});
        protocol.Prefetch();
        if (step == 29) break;
      }
    }
    return wishes.prefetched;
  };
  const ExpertKey own{.layer = {1}, .expert = {5}};
  const ExpertKey low{.layer = {1}, .expert = {5}, .copy = kLowCopy};
  EXPECT_TRUE(prefetched({}).contains(own));
  EXPECT_TRUE(prefetched(flat).contains(own));
  EXPECT_TRUE(prefetched(steep).contains(low));
  EXPECT_FALSE(prefetched(steep).contains(own));
}

TEST(CheckLossy, NamesWhatIsWrong) {
  const auto message = [](const LossyOptions& options, bool has_low) {
    const Status status = CheckLossy(options, has_low);
    return status ? std::string() : status.error().message;
  };
  EXPECT_EQ(message({}, false), "");
  EXPECT_EQ(message({.t1 = 0.2, .t2 = 0.4}, true), "");
  EXPECT_NE(message({.t1 = 0.5, .t2 = 0.4}, true).find("--t1 0.5"), std::string::npos);
  EXPECT_NE(message({.t1 = 0.95}, true).find("above --t2 0.9"), std::string::npos);
  EXPECT_NE(message({.t2 = 0.5}, false).find("--low"), std::string::npos);
}

TEST(ResidentModel, KnowsWhatPlansAskedForUntilItLeaves) {
  std::vector<SlotTable> tables;
  for (const size_t slots : {3U, 2U}) {
    tables.emplace_back(PolicyShape{.slots = slots, .layers = 1, .experts = 8},
                        *MakePolicy({.name = "lru"}));
  }
  ResidentModel model(std::move(tables), [](ExpertKey key) { return uint32_t{key.copy}; });
  const auto run = [&](const std::vector<ExpertKey>& keys, Use use) {
    LayerPlan plan;
    for (const ExpertKey key : keys) plan.experts.push_back({.key = key, .use = use, .n_pairs = 1});
    model.BeginLayer(kLayer);
    model.Run(plan);
  };
  run({Own(0), Own(1), Low(2)}, Use::kDecode);
  EXPECT_TRUE(model.contains(Own(0)) && model.contains(Own(1)) && model.contains(Low(2)));
  EXPECT_FALSE(model.contains(Own(2)) || model.contains(Low(0)));
  run({Own(3), Own(4)}, Use::kDecode);
  EXPECT_FALSE(model.contains(Own(0)));
  EXPECT_TRUE(model.contains(Low(2)));                           // slots of their own
  run({Own(0), Own(1), Own(2), Own(5), Own(6)}, Use::kPrefill);  // more than there are slots
  EXPECT_TRUE(model.contains(Own(6)));
  model.Fetch(Low(7));
  EXPECT_TRUE(model.contains(Low(7)));
}

TEST(Upgrades, AnExpertThatRunsLowAgainSoonIsNamedTwoPerStepAtMost) {
  Upgrades upgrades({.n_layer = 4, .n_expert = 8, .n_used = 2});
  const auto plan = [](uint16_t layer, const std::vector<uint16_t>& low, CopyId copy = kLowCopy) {
    LayerPlan made{.layer = ExpertLayerId{layer}};
    for (const uint16_t e : low) {
      made.experts.push_back(
          {.key = {.layer = ExpertLayerId{layer}, .expert = {e}, .copy = copy}, .n_pairs = 1});
    }
    return made;
  };
  for (uint16_t layer = 0; layer < 4; ++layer) EXPECT_FALSE(upgrades.Next(plan(layer, {1, 2})));
  const auto first = upgrades.Next(plan(0, {3, 2, 1}));
  ASSERT_TRUE(first);
  EXPECT_EQ(*first, (ExpertKey{.layer = ExpertLayerId{0}, .expert = {2}}));
  EXPECT_TRUE(upgrades.Next(plan(1, {1})));
  EXPECT_FALSE(upgrades.Next(plan(2, {1}))) << "two in this step already";
  EXPECT_FALSE(upgrades.Next(plan(0, {5}, 0))) << "an own copy";
  for (int step = 0; step < 20; ++step) EXPECT_FALSE(upgrades.Next(plan(0, {})));
  EXPECT_FALSE(upgrades.Next(plan(0, {3}))) << "too long ago";
}

}  // namespace
}  // namespace moestro
