// SPDX-License-Identifier: MIT
#include "decide/device_tier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "decide/policy.h"

namespace moestro {
namespace {

constexpr uint64_t kBytes = 1'000'000;

ExpertKey Key(uint16_t expert, uint16_t layer = 0) { return {{layer}, {expert}}; }

// Copying takes as long as ten uses on the CPU save.
LatencyModel Costs() {
  return {.host = {.per_byte = 1.1e-9},
          .device = {.per_byte = 0.1e-9},
          .copy = {.per_byte = 10e-9},
          .disk = {.per_byte = 20e-9}};
}

class Tier {
 public:
  Tier(uint64_t slots, PlaceMode mode, const LatencyModel& costs = Costs())
      : tier_(PartsOf(slots), costs, mode) {}

  LayerPlan Plan(const std::vector<uint16_t>& experts, Use use = Use::kDecode) {
    LayerPlan plan{
        .layer = LayerId{0}, .n_rows = 1, .n_used = static_cast<uint32_t>(experts.size())};
    for (const uint16_t e : experts) {
      plan.experts.push_back({.key = Key(e), .use = use, .n_pairs = 1});
    }
    tier_.BeginLayer(LayerId{0});
    tier_.Assign(plan);
    return plan;
  }
  // A layer from its plan to its end.
  LayerPlan Run(const std::vector<uint16_t>& experts) {
    const LayerPlan plan = Plan(experts);
    tier_.Done(plan);
    return plan;
  }
  DeviceTier* operator->() { return &tier_; }

 private:
  DeviceTierParts PartsOf(uint64_t slots) {
    auto policy = MakePolicy({.name = "lru"});
    std::vector<std::optional<SlotTable>> tables(2);
    tables[0].emplace(PolicyShape{.slots = slots, .layers = 1, .experts = 64}, *std::move(policy));
    return {.tables = std::move(tables),
            .form_of = [](ExpertKey key) { return key.expert.value >= 50 ? 1U : 0U; },
            .bytes_of = [](ExpertKey) { return kBytes; },
            .in_memory = [](ExpertKey) { return true; }};
  }
  DeviceTier tier_;
};

// "5h 3c 1D": experts in the plan's order.
std::string Text(const LayerPlan& plan) {
  std::string text;
  for (const PlannedExpert& e : plan.experts) {
    if (!text.empty()) text += ' ';
    text += std::to_string(e.key.expert.value);
    text += e.place == Place::kHost ? 'h' : e.place == Place::kCopied ? 'c' : 'D';
  }
  return text;
}

TEST(DeviceTier, HostFirstThenCopiesThenWhatIsThere) {
  Tier tier(4, PlaceMode::kGpuCentric);
  EXPECT_EQ(Text(tier.Run({1, 2})), "1c 2c");
  EXPECT_EQ(Text(tier.Run({1, 60, 3, 2})), "60h 3c 1D 2D");  // 60's form is none of the device's
  EXPECT_EQ(tier->stats().experts, 6U);
  EXPECT_EQ(tier->stats().copied, 3U);
  EXPECT_EQ(tier->stats().on_device, 2U);
  EXPECT_EQ(tier->stats().copied_bytes, 3 * kBytes);
}

TEST(DeviceTier, SlotsDifferAndHoldWhatIsThere) {
  Tier tier(3, PlaceMode::kGpuCentric);
  const LayerPlan first = tier.Run({1, 2, 3});
  std::set<uint32_t> slots;
  for (const PlannedExpert& e : first.experts) slots.insert(e.slot.value);
  EXPECT_EQ(slots.size(), 3U);
  for (const PlannedExpert& again : tier.Run({3, 1, 2}).experts) {
    EXPECT_EQ(again.slot, std::ranges::find(first.experts, again.key, &PlannedExpert::key)->slot);
  }
}

TEST(DeviceTier, TheLayersOwnExpertsAreNotEvictedByItsCopies) {
  Tier tier(3, PlaceMode::kGpuCentric);
  tier.Run({1, 2, 3});
  // 1 is the oldest, but needed: 2 and 3 give way, and there is no room for a third copy.
  EXPECT_EQ(Text(tier.Run({1, 4, 5, 6})), "6h 4c 5c 1D");
  EXPECT_TRUE(tier->contains(Key(1)));
  EXPECT_FALSE(tier->contains(Key(2)));
}

TEST(DeviceTier, AFailedLayerIsForTheCpuAndItsCopiesAreNotThere) {
  Tier tier(4, PlaceMode::kGpuCentric);
  tier.Run({1});
  LayerPlan plan = tier.Plan({1, 2});
  ASSERT_EQ(Text(plan), "2c 1D");
  tier->Failed(plan);
  EXPECT_EQ(Text(plan), "2h 1h");
  EXPECT_TRUE(tier->contains(Key(1)));
  EXPECT_FALSE(tier->contains(Key(2)));
  EXPECT_EQ(tier->stats().failures, 1U);
  EXPECT_EQ(Text(tier.Run({1, 2, 3, 4})), "2c 3c 4c 1D");  // no slot was lost
}

TEST(DeviceTier, OffEverythingIsForTheCpu) {
  Tier tier(4, PlaceMode::kGpuCentric);
  tier.Run({1});
  tier->TurnOff();
  EXPECT_EQ(Text(tier.Run({1, 2})), "1h 2h");
  EXPECT_FALSE(tier->contains(Key(1)));
  EXPECT_FALSE(tier->Promote(tier.Plan({3})));
}

// A use on the CPU costs 1 ms more than one there, a copy 10 ms.
TEST(DeviceTier, AnExpertMovesWhenItsUsesPayForTheCopy) {
  Tier tier(1, PlaceMode::kAuto);
  int uses = 0;
  std::optional<DeviceTier::Promotion> promotion;
  while (!promotion && uses < 100) {
    promotion = tier->Promote(tier.Run({7}));
    ++uses;
  }
  ASSERT_TRUE(promotion);
  EXPECT_EQ(promotion->key, Key(7));
  EXPECT_EQ(uses, 11);  // the tenth decayed a little
  // Not there before it has landed.
  EXPECT_EQ(Text(tier.Run({7})), "7h");
  tier->Promoted(*promotion, true);
  EXPECT_EQ(Text(tier.Run({7})), "7D");
  EXPECT_EQ(tier->stats().promotions, 1U);
}

TEST(DeviceTier, OneThatIsUsedAsOftenDoesNotTakeItsPlace) {
  Tier tier(1, PlaceMode::kAuto);
  for (int i = 0; i < 30; ++i) {
    if (const auto promotion = tier->Promote(tier.Run({7, 8}))) tier->Promoted(*promotion, true);
  }
  EXPECT_EQ(tier->stats().promotions, 1U);
  // 8 goes on, 7 does not: in the end the slot is worth more to 8, by more than the copy costs.
  for (int i = 0; i < 200; ++i) {
    if (const auto promotion = tier->Promote(tier.Run({8}))) tier->Promoted(*promotion, true);
  }
  EXPECT_EQ(Text(tier.Run({8})), "8D");
  EXPECT_EQ(tier->stats().promotions, 2U);
}

TEST(DeviceTier, WhatFailedToMoveIsNotThere) {
  Tier tier(1, PlaceMode::kAuto);
  std::optional<DeviceTier::Promotion> promotion;
  for (int i = 0; i < 40 && !promotion; ++i) promotion = tier->Promote(tier.Run({7}));
  ASSERT_TRUE(promotion);
  tier->Promoted(*promotion, false);
  EXPECT_FALSE(tier->contains(Key(7)));
  EXPECT_TRUE(tier->Promote(tier.Run({7})));  // another try
}

TEST(DeviceTier, FixedModesMoveNothingBeside) {
  for (const PlaceMode mode : {PlaceMode::kCooperative, PlaceMode::kCpu}) {
    Tier tier(4, mode);
    for (int i = 0; i < 50; ++i) {
      const LayerPlan plan = tier.Run({1, 2});
      EXPECT_EQ(Text(plan), "1h 2h");
      EXPECT_FALSE(tier->Promote(plan));
    }
  }
}

}  // namespace
}  // namespace moestro
