// SPDX-License-Identifier: MIT
#include "decide/device_tier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/batch.h"
#include "core/routing.h"
#include "decide/layer_planner.h"
#include "decide/policy.h"

namespace moestro {
namespace {

constexpr uint64_t kBytes = 1'000'000;

ExpertKey Key(uint16_t expert, uint16_t layer = 0) { return {{layer}, {expert}}; }

// Copying takes as long as ten uses on the CPU save.
LatencyModel Costs() {
  return {.host = {.per_byte = 1.1e-9},
          .disk = {},
          .devices = {{.compute = {.per_byte = 0.1e-9}, .copy = {.per_byte = 10e-9}}}};
}
// A second device that is slower.
LatencyModel TwoDevices() {
  LatencyModel costs = Costs();
  costs.devices.push_back({.compute = {.per_byte = 0.6e-9}, .copy = {.per_byte = 10e-9}});
  return costs;
}
// Copying is quick, reading takes as long as 18 uses on the CPU.
LatencyModel SlowDisk() {
  LatencyModel costs = Costs();
  costs.devices[0].copy.per_byte = 0.2e-9;
  costs.disk.per_byte = 20e-9;
  return costs;
}

class Tier {
 public:
  // `slots`: of every device of `costs`; `memory`: slots of a model of it, 0: it holds all.
  Tier(uint64_t slots, PlaceMode mode, const LatencyModel& costs = Costs(), uint64_t memory = 0,
       Tiers tiers = Tiers::kInclusive)
      : tier_(PartsOf(slots, costs.devices.size(), memory, tiers), costs, mode) {}
  Tier(const Tier&) = delete;  // it is told what to drop
  Tier& operator=(const Tier&) = delete;

  LayerPlan Plan(const std::vector<uint16_t>& experts, Use use = Use::kDecode) {
    LayerPlan plan{
        .layer = LayerId{0}, .n_rows = 1, .n_used = static_cast<uint32_t>(experts.size())};
    for (uint32_t i = 0; i < experts.size(); ++i) {
      plan.experts.push_back({.key = Key(experts[i]), .use = use, .first_pair = i, .n_pairs = 1});
      plan.pair_of.push_back(i);
    }
    plan.row_of.assign(experts.size(), 0);
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
  const std::vector<ExpertKey>& dropped() const { return dropped_; }

 private:
  static SlotTable Table(uint64_t slots) {
    auto policy = MakePolicy({.name = "lru"});
    return {PolicyShape{.slots = slots, .layers = 1, .experts = 64}, *std::move(policy)};
  }
  DeviceTierParts PartsOf(uint64_t slots, size_t devices, uint64_t memory, Tiers tiers) {
    std::vector<std::vector<std::optional<SlotTable>>> tables(devices);
    for (std::vector<std::optional<SlotTable>>& its : tables) {
      its.resize(2);
      its[0].emplace(Table(slots));
    }
    DeviceTierParts parts{.tables = std::move(tables),
                          .form_of = [](ExpertKey key) { return key.expert.value >= 50 ? 1U : 0U; },
                          .bytes_of = [](ExpertKey) { return kBytes; },
                          .in_memory = [](ExpertKey) { return true; },
                          .memory = {},
                          .tiers = tiers,
                          .drop = [this](ExpertKey key) { dropped_.push_back(key); },
                          .usual_share = 0.25};
    if (memory > 0) {
      std::vector<SlotTable> behind;
      behind.push_back(Table(memory));
      parts.memory.emplace(std::move(behind), [](ExpertKey) { return 0U; });
    }
    return parts;
  }
  std::vector<ExpertKey> dropped_;  // from memory
  DeviceTier tier_;
};

// "5h 3c 1D": experts in the plan's order; "d" and "E" on the second device.
std::string Text(const LayerPlan& plan) {
  std::string text;
  for (const PlannedExpert& e : plan.experts) {
    if (!text.empty()) text += ' ';
    text += std::to_string(e.key.expert.value);
    if (e.place == Place::kHost) {
      text += 'h';
    } else if (e.place == Place::kCopied) {
      text += e.device == 0 ? 'c' : 'd';
    } else {
      text += e.device == 0 ? 'D' : 'E';
    }
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
  tier->Failed(plan, 0);
  EXPECT_EQ(Text(plan), "2h 1h");
  EXPECT_TRUE(tier->contains(Key(1)));
  EXPECT_FALSE(tier->contains(Key(2)));
  EXPECT_EQ(tier->stats().failures, 1U);
  EXPECT_EQ(Text(tier.Run({1, 2, 3, 4})), "2c 3c 4c 1D");  // no slot was lost
}

TEST(DeviceTier, OffEverythingIsForTheCpu) {
  Tier tier(4, PlaceMode::kGpuCentric);
  tier.Run({1});
  tier->TurnOff(0);
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

TEST(DeviceTier, TheFirstOfAListFillItAndTheLastOfThemLeavesFirst) {
  Tier tier(3, PlaceMode::kGpuCentric);
  const std::vector<ExpertKey> first = {Key(9), Key(60), Key(4), Key(5), Key(6)};
  const std::vector<DeviceTier::Promotion> filled = tier->Fill(first);
  ASSERT_EQ(filled.size(), 3U);  // 60's form is none of the device's
  for (const DeviceTier::Promotion& one : filled) tier->Promoted(one, one.key != Key(4));
  EXPECT_FALSE(tier->contains(Key(4)));
  EXPECT_EQ(Text(tier.Run({9, 5})), "9D 5D");
  EXPECT_EQ(tier->stats().promotions, 0U);

  Tier other(2, PlaceMode::kGpuCentric);
  for (const auto& one : other->Fill(first)) other->Promoted(one, true);
  EXPECT_EQ(Text(other.Run({1})), "1c");
  EXPECT_TRUE(other->contains(Key(9)));
  EXPECT_FALSE(other->contains(Key(4)));
  Tier none(2, PlaceMode::kCpu);
  EXPECT_TRUE(none->Fill(first).empty());
}

TEST(DeviceTier, SoManyMoveAtATime) {
  Tier tier(64, PlaceMode::kAuto);
  size_t moving = 0;
  for (int i = 0; i < 60; ++i) {
    moving += tier->Promote(tier.Run({1, 2, 3, 4, 5, 6, 7, 8, 9, 10})).has_value();
  }
  EXPECT_EQ(moving, DeviceTier::kMostPromotions);
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

// A layer would be done sooner with 8 copied, but 7 would have to be read again and again then.
TEST(DeviceTier, ACopyIsChargedForTheReadsOfWhoLeaves) {
  Tier tier(1, PlaceMode::kAuto, SlowDisk(), 2);
  EXPECT_EQ(Text(tier.Run({7})), "7c");
  for (uint16_t i = 0; i < 40; ++i) {
    EXPECT_EQ(Text(tier.Run({7, static_cast<uint16_t>(10 + i % 30)})).substr(2), "h 7D");
  }
  EXPECT_EQ(Text(tier.Run({8})), "8h");
  EXPECT_TRUE(tier->contains(Key(7)));
  // One that is used as often costs nothing.
  Tier equal(1, PlaceMode::kAuto, SlowDisk(), 2);
  EXPECT_EQ(Text(equal.Run({7})), "7c");
  for (int i = 0; i < 40; ++i) EXPECT_EQ(Text(equal.Run({7, 9})), "9h 7D");
  EXPECT_EQ(Text(equal.Run({9})), "9c");
}

// Who is there first counts as used like others, so that the first who comes does not take its
// slot.
TEST(DeviceTier, WhoIsThereFirstIsWorthSomething) {
  Tier tier(1, PlaceMode::kAuto, SlowDisk(), 2);
  for (const auto& one : tier->Fill(std::vector{Key(5)})) tier->Promoted(one, true);
  tier.Run({60});  // the disk is asked: on the CPU, whose form it is
  EXPECT_EQ(Text(tier.Run({8})), "8h");
  EXPECT_EQ(Text(tier.Run({5})), "5D");
}

// What a copy or a move has brought there leaves memory; what runs on the CPU stays.
TEST(DeviceTier, ExclusiveTiersHaveAnExpertOnce) {
  Tier tier(2, PlaceMode::kGpuCentric, Costs(), 8, Tiers::kExclusive);
  tier.Run({1, 60, 2});
  EXPECT_FALSE(tier->is_in_memory(Key(1)));
  EXPECT_FALSE(tier->is_in_memory(Key(2)));
  EXPECT_TRUE(tier->is_in_memory(Key(60)));
  LayerPlan failed = tier.Plan({1, 3});
  tier->Failed(failed, 0);
  EXPECT_TRUE(tier->is_in_memory(Key(3)));
  EXPECT_EQ(tier.dropped(), (std::vector{Key(1), Key(2)}));

  Tier moves(1, PlaceMode::kAuto, Costs(), 8, Tiers::kExclusive);
  std::optional<DeviceTier::Promotion> promotion;
  while (!promotion) promotion = moves->Promote(moves.Run({7}));
  EXPECT_TRUE(moves->is_in_memory(Key(7)));
  moves->Promoted(*promotion, true);
  EXPECT_FALSE(moves->is_in_memory(Key(7)));

  Tier both(2, PlaceMode::kGpuCentric, Costs(), 8);
  both.Run({1, 60, 2});
  EXPECT_TRUE(both->is_in_memory(Key(1)));
  EXPECT_TRUE(both.dropped().empty());
}

TEST(SeveralDevices, AnExpertIsOnOneOfThem) {
  Tier tier(2, PlaceMode::kGpuCentric, TwoDevices());
  EXPECT_EQ(Text(tier.Run({1, 2, 3})), "1c 2d 3c");
  EXPECT_EQ(Text(tier.Run({1, 2, 3})), "1D 2E 3D");
  EXPECT_EQ(Text(tier.Run({2, 4})), "4c 2E");  // stays where it is
  const DeviceStats stats = tier->stats();
  EXPECT_EQ(stats.experts, 8U);
  EXPECT_EQ(stats.copied, 4U);
  EXPECT_EQ(stats.each[0].copied, 3U);
  EXPECT_EQ(stats.each[1].on_device, 2U);
  EXPECT_EQ(stats.copied_bytes, stats.each[0].copied_bytes + stats.each[1].copied_bytes);
}

TEST(SeveralDevices, TheMostPopularFillTheFirstAndThenTheNext) {
  Tier tier(2, PlaceMode::kCooperative, TwoDevices());
  const std::vector<ExpertKey> first = {Key(9), Key(60), Key(4), Key(5), Key(6), Key(7)};
  const std::vector<DeviceTier::Promotion> filled = tier->Fill(first);
  ASSERT_EQ(filled.size(), 4U);
  for (const DeviceTier::Promotion& one : filled) tier->Promoted(one, true);
  EXPECT_EQ(Text(tier.Run({4, 5, 6, 7, 9})), "7h 4D 5E 6E 9D");
  EXPECT_EQ(tier->stats().each[0].filled, 2U);
  EXPECT_EQ(tier->stats().each[1].filled, 2U);
}

// A use on the first saves 1 ms, on the second half of that.
TEST(SeveralDevices, AnExpertMovesToWhereItSavesMost) {
  Tier tier(1, PlaceMode::kAuto, TwoDevices());
  std::optional<DeviceTier::Promotion> promotion;
  while (!promotion) promotion = tier->Promote(tier.Run({7}));
  EXPECT_EQ(promotion->device, 0U);
  tier->Promoted(*promotion, true);
  // The first one's slot is worth more to 7; the second one's is free.
  promotion.reset();
  while (!promotion) promotion = tier->Promote(tier.Run({7, 8}));
  EXPECT_EQ(promotion->key, Key(8));
  EXPECT_EQ(promotion->device, 1U);
  tier->Promoted(*promotion, true);
  EXPECT_EQ(Text(tier.Run({7, 8})), "7D 8E");
}

TEST(SeveralDevices, TheOthersGoOnWithoutALostOne) {
  Tier tier(2, PlaceMode::kGpuCentric, TwoDevices());
  tier.Run({1, 2});
  LayerPlan plan = tier.Plan({1, 2});
  ASSERT_EQ(Text(plan), "1D 2E");
  tier->Failed(plan, 1);
  EXPECT_EQ(Text(plan), "1h 2h");
  EXPECT_EQ(tier->stats().each[0].failures, 0U);
  EXPECT_EQ(tier->stats().each[1].failures, 1U);
  tier->TurnOff(1);
  EXPECT_FALSE(tier->contains(Key(2)));
  EXPECT_TRUE(tier->contains(Key(1)));
  EXPECT_EQ(Text(tier.Run({1, 2, 3})), "3h 2c 1D");
}

TEST(DeviceTier, TiersHaveNames) {
  EXPECT_EQ(ParseTiers("exclusive"), Tiers::kExclusive);
  EXPECT_EQ(NameOf(Tiers::kInclusive), "inclusive");
  EXPECT_EQ(ParseTiers("both").error().code, Errc::kUsage);
}

// With a model of memory the order is as if PlanLayer() had asked that, whatever memory holds.
TEST(DeviceTier, TheOrderDoesNotDependOnWhatMemoryReallyHolds) {
  const Routing routing{
      .n_tokens = 2, .n_used = 3, .experts = {{7}, {2}, {5}, {2}, {9}, {7}}, .weights = {}};
  const std::vector<RowKind> kinds(2, RowKind::kDecode);
  for (const uint32_t held : {0U, 1U << 7, 1U << 2 | 1U << 9, ~0U}) {
    Tier tier(8, PlaceMode::kGpuCentric, Costs(), 8);
    LayerPlan warm =
        PlanLayer(LayerId{0}, {.n_tokens = 1, .n_used = 2, .experts = {{5}, {9}}, .weights = {}},
                  std::vector(1, RowKind::kDecode), [](ExpertKey) { return true; });
    tier->Assign(warm);
    tier->Done(warm);
    LayerPlan plan = PlanLayer(LayerId{0}, routing, kinds,
                               [&](ExpertKey key) { return (held >> key.expert.value & 1U) != 0; });
    tier->Assign(plan);
    EXPECT_EQ(Text(plan), "7c 2c 5D 9D") << held;
    tier->Done(plan);
    EXPECT_TRUE(tier->is_in_memory(Key(2)));
  }
}

}  // namespace
}  // namespace moestro
