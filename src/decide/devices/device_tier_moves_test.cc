// SPDX-License-Identifier: MIT
// Who moves to a device for later, and who leaves it for memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "decide/devices/device_tier.h"
#include "decide/devices/device_tier_testing.h"

namespace moestro {
namespace {

// A use on the CPU costs 1 ms more than one there, a copy 10 ms.
// The link is idle between copies, so an empty slot is filled at the first use.
TEST(DeviceTier, AnExpertMovesToAnEmptySlotAtOnce) {
  Tier tier(1, PlaceMode::kAuto);
  const std::optional<DeviceTier::Promotion> promotion = tier->Promote(tier.Run({7}));
  ASSERT_TRUE(promotion);
  EXPECT_EQ(promotion->key, Key(7));
  // Not there before it has landed.
  EXPECT_EQ(Text(tier.Run({7})), "7h");
  tier->Promoted(*promotion, true);
  EXPECT_EQ(Text(tier.Run({7})), "7D");
  EXPECT_EQ(tier->stats().promotions, 1U);
}

TEST(DeviceTier, AnExpertTakesASlotWhenItsUsesPayForTheCopyAndTheUsesOfTheOther) {
  Tier tier(1, PlaceMode::kAuto);
  tier->Promoted(*tier->Promote(tier.Run({6})), true);
  int uses = 0;
  std::optional<DeviceTier::Promotion> promotion;
  while (!promotion && uses < 100) {
    promotion = tier->Promote(tier.Run({7}));
    ++uses;
  }
  ASSERT_TRUE(promotion);
  EXPECT_EQ(promotion->key, Key(7));
  EXPECT_GT(uses, 10);  // ten copies' worth of gain, and one use of the other that has decayed
  EXPECT_LT(uses, 16);
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

// An expert that is read only for a copy pushes no expert out of memory. An expert in memory is
// copied from memory.
TEST(DeviceTier, ExclusiveTiersReadPastMemory) {
  Tier tier(2, PlaceMode::kGpuCentric, Costs(), 2, Tiers::kExclusive);
  tier.Run({60, 61});  // on the CPU, by their form
  const LayerPlan copied = tier.Run({1, 2});
  EXPECT_EQ(Text(copied), "1c 2c");
  for (const PlannedExpert& e : copied.experts) EXPECT_TRUE(e.is_staged);
  EXPECT_TRUE(tier->is_in_memory(Key(60)) && tier->is_in_memory(Key(61)));
  EXPECT_FALSE(tier->is_in_memory(Key(1)));
  EXPECT_EQ(tier->stats().staged, 2U);

  // A failed layer asks memory for all of its experts, the next one copies from there.
  LayerPlan failed = tier.Plan({3, 4});
  tier->Failed(failed, 0);
  for (const PlannedExpert& e : failed.experts) EXPECT_FALSE(e.is_staged);
  EXPECT_TRUE(tier->is_in_memory(Key(3)) && tier->is_in_memory(Key(4)));
  for (const PlannedExpert& e : tier.Run({3, 4}).experts) EXPECT_FALSE(e.is_staged);
  EXPECT_EQ(tier->stats().staged, 4U);

  Tier both(2, PlaceMode::kGpuCentric, Costs(), 2);
  for (const PlannedExpert& e : both.Run({1, 2}).experts) EXPECT_FALSE(e.is_staged);
  EXPECT_TRUE(both->is_in_memory(Key(1)));
}

// A quarter of a read takes as long as five copies.
TEST(DeviceTier, WhoLeavesTheDeviceGoesBackToMemoryIfItsReadsCostMore) {
  LatencyModel costs = SlowDisk();
  costs.devices[0].copy.per_byte = 1e-9;
  Tier tier(2, PlaceMode::kGpuCentric, costs, 2, Tiers::kExclusive);
  const LayerPlan first = tier.Run({1, 2});
  EXPECT_TRUE(first.moved_back.empty());
  // Two free slots of memory: both go there, and the device has their slots for others.
  const LayerPlan second = tier.Run({3, 4});
  ASSERT_EQ(second.moved_back.size(), 2U);
  EXPECT_EQ(second.moved_back[1].key, Key(2));
  EXPECT_EQ(second.moved_back[1].slot, first.experts[1].slot);
  EXPECT_TRUE(tier->is_in_memory(Key(1)) && tier->is_in_memory(Key(2)));
  EXPECT_EQ(tier->stats().moved_back, 2U);
  EXPECT_EQ(tier->stats().staged, 4U);
  // One that is used as often as those in memory is not worth the copy. What is copied from there
  // leaves room for one more.
  EXPECT_TRUE(tier.Run({5}).moved_back.empty());
  const LayerPlan third = tier.Run({1});
  EXPECT_FALSE(third.experts[0].is_staged);
  EXPECT_TRUE(third.moved_back.empty());  // 1 itself is in the way until it has landed
  EXPECT_FALSE(tier->is_in_memory(Key(1)));
  EXPECT_EQ(tier.Run({6}).moved_back.size(), 1U);
}

TEST(DeviceTier, NobodyGoesBackWhereThatDoesNotPay) {
  // Reads are free.
  Tier free_disk(1, PlaceMode::kGpuCentric, Costs(), 4, Tiers::kExclusive);
  free_disk.Run({1});
  EXPECT_TRUE(free_disk.Run({2}).moved_back.empty());
  // Memory may have it anyway.
  Tier both(1, PlaceMode::kGpuCentric, SlowDisk(), 4);
  both.Run({1});
  EXPECT_TRUE(both.Run({2}).moved_back.empty());
  // Prompts do not count as uses to come.
  Tier prompt(1, PlaceMode::kGpuCentric, SlowDisk(), 4, Tiers::kExclusive);
  prompt->Done(prompt.Plan({1}, Use::kPrefill));
  EXPECT_TRUE(prompt.Run({2}).moved_back.empty());
}

// The same for an expert that gives its slot to an expert copied for later.
TEST(DeviceTier, AMoveForLaterSendsBackWhoLeaves) {
  LatencyModel costs = SlowDisk();
  costs.devices[0].copy.per_byte = 3e-9;
  Tier tier(1, PlaceMode::kAuto, costs, 4, Tiers::kExclusive);
  for (const auto& one : tier->Fill(std::vector{Key(5)})) tier->Promoted(one, true);
  std::optional<DeviceTier::Promotion> promotion;
  for (int i = 0; i < 200 && !promotion; ++i) promotion = tier->Promote(tier.Run({7}));
  ASSERT_TRUE(promotion);
  EXPECT_EQ(promotion->moved_back, Key(5));
  EXPECT_TRUE(tier->is_in_memory(Key(5)));
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

// From a slot of its own device, if the way back from there is short enough.
TEST(SeveralDevices, WhoLeavesOneGoesBackFromThere) {
  LatencyModel costs = SlowDisk();
  costs.devices.push_back(costs.devices[0]);
  costs.devices[1].copy.per_byte = 6e-9;  // a quarter of a read is less
  Tier tier(1, PlaceMode::kGpuCentric, costs, 2, Tiers::kExclusive);
  const LayerPlan first = tier.Run({1, 2});
  const auto there = std::ranges::find(first.experts, 0U, &PlannedExpert::device);
  ASSERT_NE(there, first.experts.end());
  const LayerPlan second = tier.Run({3, 4});
  ASSERT_EQ(second.moved_back.size(), 1U);
  EXPECT_EQ(second.moved_back[0].key, there->key);
  EXPECT_EQ(second.moved_back[0].device, 0U);
  EXPECT_EQ(second.moved_back[0].slot, there->slot);
  const DeviceStats stats = tier->stats();
  EXPECT_EQ(stats.moved_back, 1U);
  EXPECT_EQ(stats.each[0].moved_back, 1U);
  EXPECT_EQ(stats.staged, 4U);
  EXPECT_EQ(stats.each[0].staged, 2U);
  EXPECT_EQ(stats.each[1].staged, 2U);
}

// Memory has one place for who leaves, whichever device that is.
TEST(SeveralDevices, RoomInMemoryIsOneForAll) {
  LatencyModel costs = SlowDisk();
  costs.devices.push_back(costs.devices[0]);
  Tier tier(1, PlaceMode::kGpuCentric, costs, 1, Tiers::kExclusive);
  tier.Run({1, 2});
  EXPECT_EQ(tier.Run({3, 4}).moved_back.size(), 1U);
  EXPECT_NE(tier->is_in_memory(Key(1)), tier->is_in_memory(Key(2)));
}

}  // namespace
}  // namespace moestro
