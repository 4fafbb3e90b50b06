// SPDX-License-Identifier: MIT
#include "decide/devices/device_tier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/batch.h"
#include "decide/devices/device_tier_testing.h"
#include "decide/layer/layer_planner.h"

namespace moestro {
namespace {

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

// Of a prompt that asked for 3 four times, for 5 twice, for others once.
TEST(DeviceTier, ThePromptsMostPopularFillItBeforeDecode) {
  Tier tier(2, PlaceMode::kCooperative);
  const auto prompt = [&tier](const std::vector<uint16_t>& experts) {
    LayerPlan plan = tier.Plan(experts, Use::kPrefill);
    tier->Done(plan);
  };
  for (const std::vector<uint16_t>& experts :
       std::vector<std::vector<uint16_t>>{{1, 3}, {3, 5}, {3, 60}, {5, 3}}) {
    prompt(experts);
  }
  const std::vector<DeviceTier::Promotion> filled = tier->FillByUses();
  ASSERT_EQ(filled.size(), 2U);
  for (const DeviceTier::Promotion& one : filled) tier->Promoted(one, true);
  EXPECT_EQ(Text(tier.Run({1, 3, 5})), "1h 3D 5D");
  // Once, and decode is not interrupted by a later prompt.
  prompt({7, 8});
  EXPECT_TRUE(tier->FillByUses().empty());
}

// What the prompt brought there and asked for most stays, the rest gives way.
TEST(DeviceTier, WhoIsThereAlreadyAndPopularKeepsItsSlot) {
  Tier tier(2, PlaceMode::kGpuCentric);
  for (const uint16_t expert : std::vector<uint16_t>{3, 3, 3, 5, 5, 8, 3}) {
    LayerPlan plan = tier.Plan({expert}, Use::kPrefill);
    tier->Done(plan);
  }
  ASSERT_TRUE(tier->contains(Key(8)));
  const std::vector<DeviceTier::Promotion> filled = tier->FillByUses();
  ASSERT_EQ(filled.size(), 1U);
  EXPECT_EQ(filled[0].key, Key(5));
  tier->Promoted(filled[0], true);
  EXPECT_EQ(Text(tier.Run({3, 5})), "3D 5D");
}

TEST(DeviceTier, AFillTakesNoLongerThanItMay) {
  LatencyModel costs = Costs();
  costs.devices[0].copy = {.base = 0.3 * DeviceTier::kMostFillSeconds};
  Tier tier(8, PlaceMode::kCooperative, costs);
  LayerPlan plan = tier.Plan({1, 2, 3, 4, 5}, Use::kPrefill);
  tier->Done(plan);
  EXPECT_EQ(tier->FillByUses().size(), 3U);
}

TEST(DeviceTier, AProfileGoesBeforeThePrompt) {
  Tier tier(2, PlaceMode::kCooperative);
  for (const auto& one : tier->Fill(std::vector{Key(9)})) tier->Promoted(one, true);
  LayerPlan plan = tier.Plan({1, 2}, Use::kPrefill);
  tier->Done(plan);
  EXPECT_TRUE(tier->FillByUses().empty());
  EXPECT_TRUE(tier->contains(Key(9)));
}

// Two layers of four experts on a device of `slots`.
struct SmallModel {
  SmallModel(size_t slots, PlaceMode mode, double border, double launch = 0.0) {
    std::vector<std::vector<std::optional<SlotTable>>> tables(1);
    tables[0].emplace_back(std::in_place, PolicyShape{.slots = slots, .layers = 2, .experts = 4},
                           *MakePolicy({.name = "lru"}));
    LatencyModel costs = Costs();
    costs.border = border;
    costs.devices[0].launch = launch;
    tier.emplace(DeviceTierSetup{.tables = std::move(tables),
                                 .form_of = [](ExpertKey) { return 0U; },
                                 .bytes_of = [](ExpertKey) { return kBytes; },
                                 .in_memory = [](ExpertKey) { return true; },
                                 .memory_slots = {8},
                                 .pool_of = [](ExpertKey) { return 0U; },
                                 .n_expert = 4,
                                 .n_layers = 2,
                                 .usual_share = 0.5,
                                 .runs_layers = true},
                 costs, mode);
  }
  // Fills the device with `first`; how many experts are there afterwards.
  size_t Fill(const std::vector<ExpertKey>& first) {
    const std::vector<DeviceTier::Promotion> filled = tier->Fill(first);
    for (const DeviceTier::Promotion& one : filled) tier->Promoted(one, true);
    tier->FindWhole();
    return filled.size();
  }
  LayerPlan Assign(uint16_t layer, const std::vector<uint16_t>& experts) {
    LayerPlan plan{.layer = ExpertLayerId{layer},
                   .n_rows = 1,
                   .n_used = static_cast<uint32_t>(experts.size())};
    for (uint32_t i = 0; i < experts.size(); ++i) {
      plan.experts.push_back({.key = Key(experts[i], layer), .first_pair = i, .n_pairs = 1});
      plan.pair_of.push_back(i);
    }
    plan.row_of.assign(experts.size(), 0);
    tier->Assign(plan);
    return plan;
  }
  std::optional<DeviceTier> tier;
};

TEST(WholeLayers, AllExpertsThatFitAreThereInOrder) {
  SmallModel model(8, PlaceMode::kAuto, 1e-3);
  EXPECT_EQ(model.Fill({}), 8U);
  EXPECT_TRUE(model.tier->whole().has_all());
  const std::vector<SlotId> slots = model.tier->SlotsOfWhole(ExpertLayerId{1});
  ASSERT_EQ(slots.size(), 4U);
  for (uint32_t e = 0; e < 4; ++e) EXPECT_EQ(slots[e].value, 4 + e);
  const LayerPlan plan = model.Assign(1, {3, 0});
  EXPECT_EQ(Text(plan), "3D 0D");
  EXPECT_EQ(plan.predicted.border, 0.0);
  model.tier->Done(plan);
  // And stay where they are.
  for (uint64_t step = 0; step < DeviceTier::kTokensToChange; ++step) {
    model.tier->BeginLayer(ExpertLayerId{0});
    model.tier->Done(model.Assign(0, {0, 1}));
  }
  EXPECT_FALSE(model.tier->wants_fill());
}

TEST(WholeLayers, OneExpertLessAndTheLayerIsShared) {
  SmallModel model(7, PlaceMode::kAuto, 1e-3);
  EXPECT_EQ(model.Fill({}), 0U);  // they do not fit, and no profile names the first
  EXPECT_FALSE(model.tier->whole().has(ExpertLayerId{0}));
  std::vector<ExpertKey> first;
  for (uint16_t e = 0; e < 4; ++e) first.push_back(Key(e, 1));
  EXPECT_EQ(model.Fill(first), 4U);
  EXPECT_FALSE(model.tier->whole().has(ExpertLayerId{0}));
  EXPECT_TRUE(model.tier->whole().has(ExpertLayerId{1}));
  EXPECT_FALSE(model.tier->whole().has_all());
}

std::vector<ExpertKey> AllOfSmallModel() {
  std::vector<ExpertKey> all;
  for (uint16_t e = 0; e < 4; ++e) {
    for (const uint16_t layer : {uint16_t{0}, uint16_t{1}}) all.push_back(Key(e, layer));
  }
  return all;
}

TEST(WholeLayers, AMachineWithoutDevicesFillsNone) {
  DeviceTier tier({.tables = {},
                   .form_of = [](ExpertKey) { return 0U; },
                   .bytes_of = [](ExpertKey) { return kBytes; },
                   .in_memory = [](ExpertKey) { return true; },
                   .memory_slots = {8},
                   .pool_of = [](ExpertKey) { return 0U; },
                   .n_expert = 4,
                   .n_layers = 2,
                   .usual_share = 0.5},
                  {.host = {.per_byte = 1e-9}}, PlaceMode::kAuto);
  EXPECT_TRUE(tier.Fill(AllOfSmallModel()).empty());
  EXPECT_TRUE(tier.FillByUses().empty());
  EXPECT_FALSE(tier.wants_fill());
}

// Five slots: the last layer has its own, and the fifth is the first layer's.
TEST(WholeLayers, KeepTheirSlotsBesideHotExperts) {
  SmallModel model(5, PlaceMode::kAuto, 1e-3, 2e-3);
  EXPECT_EQ(model.Fill(AllOfSmallModel()), 5U);
  EXPECT_EQ(model.tier->division().layers, 1U);
  EXPECT_LT(model.tier->division().seconds, 0.8 * model.tier->division().without);
  EXPECT_FALSE(model.tier->whole().has(ExpertLayerId{0}));
  ASSERT_TRUE(model.tier->whole().has(ExpertLayerId{1}));
  const std::vector<SlotId> slots = model.tier->SlotsOfWhole(ExpertLayerId{1});
  for (uint32_t e = 0; e < 4; ++e) EXPECT_EQ(slots[e].value, e);
  const LayerPlan whole = model.Assign(1, {3, 0});
  EXPECT_EQ(Text(whole), "3D 0D");
  model.tier->Done(whole);
  // Other experts of the first layer come and go in the fifth slot alone.
  for (uint16_t e = 0; e < 12; ++e) {
    const LayerPlan plan = model.Assign(0, {static_cast<uint16_t>(e % 4)});
    model.tier->Done(plan);
    if (const auto later = model.tier->Promote(plan)) {
      EXPECT_EQ(later->slot.value, 4U);
      model.tier->Promoted(*later, true);
    }
  }
  model.tier->FindWhole();
  EXPECT_TRUE(model.tier->whole().has(ExpertLayerId{1}));
}

TEST(WholeLayers, ALostDeviceIsNotFilledAnew) {
  SmallModel model(5, PlaceMode::kAuto, 1e-3, 2e-3);
  model.Fill(AllOfSmallModel());
  model.tier->TurnOff(0);
  for (uint16_t step = 0; step < DeviceTier::kTokensToChange; ++step) {
    model.tier->BeginLayer(ExpertLayerId{0});
    model.tier->Done(model.Assign(0, {0, 1}));
  }
  EXPECT_TRUE(model.tier->FillByUses().empty());
}

TEST(WholeLayers, ALayerThatLosesACopyIsNotWholeAndKeepsItsSlots) {
  SmallModel model(5, PlaceMode::kAuto, 1e-3, 2e-3);
  for (const auto& one : model.tier->Fill(AllOfSmallModel())) {
    model.tier->Promoted(one, one.key != Key(2, 1));
  }
  model.tier->FindWhole();
  EXPECT_FALSE(model.tier->whole().has(ExpertLayerId{1}));
  const LayerPlan plan = model.Assign(1, {2, 3});
  EXPECT_EQ(plan.experts.back().key, Key(3, 1));
  EXPECT_EQ(plan.experts.back().place, Place::kDevice);
  model.tier->Done(plan);
}

// Two experts of a whole layer have no copy, and the fifth slot is for both.
TEST(WholeLayers, LostCopiesShareTheSlotsThatAreLeft) {
  SmallModel model(5, PlaceMode::kAuto, 1e-3, 0.5e-3);
  for (const auto& one : model.tier->Fill(AllOfSmallModel())) {
    model.tier->Promoted(one, one.key.layer.value == 1 && one.key.expert.value < 2);
  }
  ASSERT_EQ(model.tier->division().layers, 1U);
  LatencyModel copies_are_cheap = model.tier->model();
  copies_are_cheap.devices[0].copy = {.per_byte = 1e-12};
  model.tier->SetModel(copies_are_cheap);
  const LayerPlan one = model.Assign(1, {2});
  EXPECT_EQ(Text(one), "2c");
  model.tier->Done(one);
  const LayerPlan both = model.Assign(1, {2, 3});
  EXPECT_EQ(Text(both), "3h 2D");
  model.tier->Done(both);
}

TEST(WholeLayers, SlotsAreDividedAnewOnceWhenDecodeHasShownItsUses) {
  SmallModel model(4, PlaceMode::kAuto, 1e-3, 2e-3);
  EXPECT_TRUE(model.tier->FillByUses().empty());  // no prompt
  EXPECT_FALSE(model.tier->wants_fill());
  // Every expert as often as the others, for 64 steps.
  for (uint16_t step = 0; step < DeviceTier::kTokensToChange; ++step) {
    EXPECT_FALSE(model.tier->wants_fill()) << step;
    for (const uint16_t layer : {uint16_t{0}, uint16_t{1}}) {
      model.tier->BeginLayer(ExpertLayerId{layer});
      const auto first = static_cast<uint16_t>(step % 4);
      const LayerPlan plan = model.Assign(layer, {first, static_cast<uint16_t>((first + 1) % 4)});
      model.tier->Done(plan);
    }
  }
  ASSERT_TRUE(model.tier->wants_fill());
  const std::vector<DeviceTier::Promotion> copied = model.tier->FillByUses();
  EXPECT_EQ(model.tier->division().layers, 1U);
  for (const auto& one : copied) model.tier->Promoted(one, true);
  model.tier->FindWhole();
  EXPECT_TRUE(model.tier->whole().has(ExpertLayerId{1}));
  EXPECT_FALSE(model.tier->wants_fill());
}

TEST(WholeLayers, FollowTheModeTheCostsAndTheDevice) {
  SmallModel by_hand(8, PlaceMode::kGpuCentric, 0.0);
  by_hand.Fill({});
  EXPECT_TRUE(by_hand.tier->whole().has_all());
  SmallModel shared(8, PlaceMode::kCooperative, 1e-3);
  EXPECT_EQ(shared.Fill({}), 0U);
  EXPECT_FALSE(shared.tier->whole().has_all());
  SmallModel in_memory(8, PlaceMode::kAuto, 0.0);  // rows do not lie on the device
  EXPECT_EQ(in_memory.Fill({}), 8U);
  EXPECT_FALSE(in_memory.tier->whole().has_all());
  SmallModel lost(8, PlaceMode::kAuto, 1e-3);
  lost.Fill({});
  const uint64_t version = lost.tier->whole().version();
  lost.tier->TurnOff(0);
  lost.tier->FindWhole();
  EXPECT_FALSE(lost.tier->whole().has(ExpertLayerId{0}));
  EXPECT_NE(lost.tier->whole().version(), version);
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
  EXPECT_EQ(ParseTiersAsked("inclusive").value(), Tiers::kInclusive);
  EXPECT_EQ(ParseTiersAsked("auto").value(), std::nullopt);
  EXPECT_EQ(ParseTiersAsked("both").error().code, Errc::kUsage);
}

TEST(DeviceTier, MemoryOfMoreThanHalfOfTheExpertsKeepsThoseOnDevices) {
  EXPECT_EQ(TiersFor(8, 64), Tiers::kExclusive);
  EXPECT_EQ(TiersFor(32, 64), Tiers::kExclusive);
  EXPECT_EQ(TiersFor(33, 64), Tiers::kInclusive);
  EXPECT_EQ(TiersFor(64, 64), Tiers::kInclusive);
}

// With a model of memory the order is as if PlanLayer() had asked that, whatever memory holds.
TEST(DeviceTier, TheOrderDoesNotDependOnWhatMemoryReallyHolds) {
  const Routing routing{
      .n_tokens = 2, .n_used = 3, .experts = {{7}, {2}, {5}, {2}, {9}, {7}}, .weights = {}};
  const std::vector<RowKind> kinds(2, RowKind::kDecode);
  for (const uint32_t held : {0U, 1U << 7, 1U << 2 | 1U << 9, ~0U}) {
    Tier tier(8, PlaceMode::kGpuCentric, Costs(), 8);
    LayerPlan warm = PlanLayer(ExpertLayerId{0},
                               {.n_tokens = 1, .n_used = 2, .experts = {{5}, {9}}, .weights = {}},
                               std::vector(1, RowKind::kDecode), [](ExpertKey) { return true; });
    tier->Assign(warm);
    tier->Done(warm);
    LayerPlan plan = PlanLayer(ExpertLayerId{0}, routing, kinds,
                               [&](ExpertKey key) { return (held >> key.expert.value & 1U) != 0; });
    tier->Assign(plan);
    EXPECT_EQ(Text(plan), "7c 2c 5D 9D") << held;
    tier->Done(plan);
    EXPECT_TRUE(tier->is_in_memory(Key(2)));
  }
}

}  // namespace
}  // namespace moestro
