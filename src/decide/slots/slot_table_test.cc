// SPDX-License-Identifier: MIT
#include "decide/slots/slot_table.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "decide/slots/policies/policies.h"
#include "decide/slots/policy.h"

namespace moestro {
namespace {

using Was = Placement::Was;

ExpertKey Key(int layer, int expert) {
  return {.layer = {static_cast<uint16_t>(layer)}, .expert = {static_cast<uint16_t>(expert)}};
}

SlotTable Table(size_t slots) {
  return {{.slots = slots, .layers = 7, .experts = 10000}, std::make_unique<LruPolicy>()};
}

// Request, land and let go, as a decode step does with one expert.
Placement Use1(SlotTable& table, ExpertKey key, Use use = Use::kDecode) {
  const auto placed = table.Request(key, use);
  EXPECT_TRUE(placed.has_value());
  if (placed->was == Was::kAbsent) table.Landed(placed->slot);
  table.Unpin(placed->slot);
  return *placed;
}

TEST(SlotTable, HitsAfterLanding) {
  SlotTable table = Table(2);
  const auto first = table.Request(Key(0, 7), Use::kDecode);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->was, Was::kAbsent);
  EXPECT_EQ(table.Request(Key(0, 7), Use::kDecode)->was, Was::kLoading);
  table.Landed(first->slot);
  EXPECT_EQ(table.Request(Key(0, 7), Use::kDecode)->was, Was::kReady);
  EXPECT_EQ(table.stats().hits, 1U);
  EXPECT_EQ(table.stats().late, 1U);
  EXPECT_EQ(table.stats().misses, 2U);
  EXPECT_EQ(table.stats().absent(), 1U);
}

// One request for all rows of a step, which still are so many uses.
TEST(SlotTable, RowsOfOneRequestAreCountedEach) {
  SlotTable table = Table(2);
  const auto first = table.Request(Key(0, 7), Use::kDecode, 3);
  table.Request(Key(0, 7), Use::kDecode, 4);  // still on its way
  table.Landed(first->slot);
  table.Request(Key(0, 7), Use::kDecode, 5);
  table.Request(Key(0, 7), Use::kPrefetch, 6);
  table.Request(Key(0, 8), Use::kPrefetch, 6);
  EXPECT_FALSE(table.Request(Key(0, 9), Use::kDecode, 7));  // refused: it will ask again
  EXPECT_EQ(table.stats().requests, 3U);
  EXPECT_EQ(table.stats().hits, 1U);
  EXPECT_EQ(table.stats().row_requests, 12U);
  EXPECT_EQ(table.stats().row_hits, 5U);
}

// What an earlier run used takes free slots alone, and is decode's from then on.
TEST(SlotTable, ARecalledExpertIsAsUsedByDecode) {
  SlotTable table = Table(2);
  const auto recalled = table.Recall(Key(0, 1), 9);
  ASSERT_TRUE(recalled);
  EXPECT_EQ(recalled->was, Was::kAbsent);
  EXPECT_FALSE(table.Recall(Key(0, 1), 9));  // is on its way
  table.Unpin(recalled->slot);
  EXPECT_EQ(table.Request(Key(0, 1), Use::kPrefill)->was, Was::kLoading);
  table.Unpin(recalled->slot);
  table.Landed(recalled->slot);
  EXPECT_EQ(table.stats().requests, 1U);
  Use1(table, Key(0, 2), Use::kPrefill);
  EXPECT_FALSE(table.Recall(Key(0, 3), 9));  // no slot is free
  EXPECT_EQ(Use1(table, Key(0, 4), Use::kPrefill).evicted, std::optional(Key(0, 2)));  // transient
  EXPECT_EQ(Use1(table, Key(0, 1)).was, Was::kReady);
}

TEST(SlotTable, ARecalledExpertThatDoesNotComeLeavesItsSlot) {
  SlotTable table = Table(1);
  const auto recalled = table.Recall(Key(0, 1), 9);
  table.Unpin(recalled->slot);
  table.Failed(recalled->slot);
  EXPECT_FALSE(table.contains(Key(0, 1)));
  EXPECT_EQ(Use1(table, Key(0, 2)).evicted, std::nullopt);
}

TEST(SlotTable, CountsTheRowsThatUsedAnExpert) {
  SlotTable table = Table(4);
  const auto uses = [&](ExpertKey key) {
    for (const SlotTable::Used& one : table.used()) {
      if (one.key == key) return one.uses;
    }
    return 0U;
  };
  table.Unpin(table.Recall(Key(0, 1), 9)->slot);
  table.Request(Key(0, 1), Use::kDecode, 3);
  EXPECT_EQ(uses(Key(0, 1)), 12U);
  table.Request(Key(0, 2), Use::kPrefill, 50);
  EXPECT_EQ(table.used().size(), 1U);  // no use of decode's
  table.Request(Key(0, 2), Use::kDecode, 2);
  EXPECT_EQ(uses(Key(0, 2)), 2U);
  table.Request(Key(0, 3), Use::kDecode, UINT32_MAX);
  table.Request(Key(0, 3), Use::kDecode, 5);
  EXPECT_EQ(uses(Key(0, 3)), UINT32_MAX);
}

TEST(SlotTable, PinnedAndLoadingSlotsStay) {
  SlotTable table = Table(2);
  const auto a = table.Request(Key(0, 0), Use::kDecode);
  const auto b = table.Request(Key(0, 1), Use::kDecode);
  table.Landed(a->slot);
  EXPECT_FALSE(table.Request(Key(0, 2), Use::kDecode).has_value());
  table.Unpin(b->slot);  // still loading: must not be given away
  EXPECT_FALSE(table.Request(Key(0, 2), Use::kDecode).has_value());
  EXPECT_EQ(table.stats().requests, 2U);  // refused requests do not count
  table.Unpin(a->slot);
  const auto c = table.Request(Key(0, 2), Use::kDecode);
  ASSERT_TRUE(c.has_value());
  EXPECT_EQ(c->evicted, Key(0, 0));
}

TEST(SlotTable, FailedSlotIsFreeAgainWhenNobodyHoldsIt) {
  SlotTable table = Table(1);
  const auto a = table.Request(Key(0, 0), Use::kDecode);
  table.Failed(a->slot);
  EXPECT_FALSE(table.contains(Key(0, 0)));
  EXPECT_FALSE(table.Request(Key(0, 1), Use::kDecode).has_value());
  table.Unpin(a->slot);
  EXPECT_EQ(Use1(table, Key(0, 0)).was, Was::kAbsent);
}

TEST(SlotTable, PrefillKeepsWhatItReadFirst) {
  SlotTable table = Table(4);
  for (int e = 0; e < 8; ++e) Use1(table, Key(0, e), Use::kPrefill);
  // Slots 0..2 kept experts 0..2, the last slot was recycled.
  for (const int e : {0, 1, 2, 7}) EXPECT_TRUE(table.contains(Key(0, e))) << e;
}

TEST(SlotTable, PrefillLeavesDecodeHistoryAlone) {
  SlotTable table = Table(4);
  for (int e = 0; e < 3; ++e) Use1(table, Key(0, e));
  for (int e = 0; e < 20; ++e) Use1(table, Key(1, e), Use::kPrefill);
  for (int e = 0; e < 3; ++e) EXPECT_TRUE(table.contains(Key(0, e))) << e;
}

TEST(SlotTable, DecodeTakesTransientSlotsBeforeItsOwn) {
  SlotTable table = Table(3);
  Use1(table, Key(0, 0), Use::kPrefill);
  Use1(table, Key(0, 1), Use::kPrefill);
  Use1(table, Key(0, 2));
  Use1(table, Key(0, 1));  // decode adopts a transient expert
  EXPECT_EQ(Use1(table, Key(0, 3)).evicted, Key(0, 0));
  EXPECT_EQ(Use1(table, Key(0, 4)).evicted, Key(0, 2));
}

// A prompt reads both experts once, whatever its rows chose; decode keeps the one it uses more.
TEST(SlotTable, DecodeKeepsWhatThePromptUsedOften) {
  SlotTable table({.slots = 2, .layers = 1, .experts = 8}, *MakePolicy({.name = "next-use"}));
  const std::vector<ExpertId> rare = {{1}};
  const std::vector<ExpertId> often = {{0}};
  for (int row = 0; row < 40; ++row) {
    table.LearnPrompt(ExpertLayerId{0}, row % 10 == 0 ? rare : often);
  }
  for (const int e : {0, 1}) Use1(table, Key(0, e), Use::kPrefill);
  table.BeginLayer(ExpertLayerId{0});
  for (const int e : {0, 1}) Use1(table, Key(0, e));
  table.BeginLayer(ExpertLayerId{0});
  EXPECT_EQ(Use1(table, Key(0, 2)).evicted, Key(0, 1));
}

TEST(SlotTable, DroppedSlotsAreFreeAndThePolicyForgetsThem) {
  SlotTable table = Table(3);
  for (int e = 0; e < 3; ++e) Use1(table, Key(0, e));
  table.Drop(Key(0, 1));
  table.Drop(Key(0, 7));  // is not there
  EXPECT_FALSE(table.contains(Key(0, 1)));
  EXPECT_EQ(table.room(), 3U);
  EXPECT_EQ(Use1(table, Key(0, 3)).evicted, std::nullopt);
  EXPECT_EQ(Use1(table, Key(0, 4)).evicted, Key(0, 0));  // the oldest of those left
  EXPECT_EQ(table.stats().evictions, 1U);
  Use1(table, Key(0, 5), Use::kPrefetch);
  table.Drop(Key(0, 5));  // one that the policy never knew
  EXPECT_EQ(table.room(), 3U);
}

TEST(SlotTable, SaysWhoWouldLeaveBesideThoseThatAreToStay) {
  SlotTable table = Table(3);
  EXPECT_EQ(table.RoomFor(Use::kDecode)->evicts, std::nullopt);  // a free one
  for (int e = 0; e < 3; ++e) Use1(table, Key(0, e));
  EXPECT_EQ(table.RoomFor(Use::kDecode)->evicts, Key(0, 0));
  const std::vector<ExpertKey> keeps = {Key(0, 0), Key(0, 1), Key(0, 8)};
  EXPECT_EQ(table.RoomFor(Use::kDecode, keeps)->evicts, Key(0, 2));
  const auto pinned = table.Request(Key(0, 2), Use::kDecode);
  EXPECT_FALSE(table.RoomFor(Use::kDecode, keeps));
  EXPECT_EQ(table.RoomFor(Use::kDecode)->evicts, Key(0, 0));
  table.Unpin(pinned->slot);
  Use1(table, Key(0, 5), Use::kPrefetch);  // in the place of 0
  EXPECT_EQ(table.RoomFor(Use::kDecode, keeps)->evicts, Key(0, 5));
}

TEST(SlotTable, WhatIsInUseOrOnItsWayIsNotDropped) {
  SlotTable table = Table(2);
  const auto loading = table.Request(Key(0, 0), Use::kDecode);
  table.Drop(Key(0, 0));
  table.Landed(loading->slot);
  table.Drop(Key(0, 0));
  EXPECT_TRUE(table.is_ready(Key(0, 0)));
  table.Unpin(loading->slot);
  table.Drop(Key(0, 0));
  EXPECT_FALSE(table.contains(Key(0, 0)));
}

// What it remembers about transient experts is bounded by its slots, not by the length of the run.
TEST(SlotTable, ALongPrefillTakesNoMoreMemory) {
  SlotTable table = Table(4);
  const auto sweep = [&table] {
    for (int e = 0; e < 10000; ++e) Use1(table, Key(e % 7, e), Use::kPrefill);
  };
  sweep();
  const size_t before = ::mallinfo2().uordblks;
  for (int i = 0; i < 20; ++i) sweep();
  // Each sweep once left 80 KB behind; the slack is what the containers may keep spare.
  EXPECT_LT(::mallinfo2().uordblks, before + 4096);
}

// Whatever the order of calls, no expert is in two slots and no pinned slot changes hands.
TEST(SlotTable, RandomWalkKeepsItsPromises) {
  std::mt19937 random(11);
  SlotTable table = Table(6);
  std::vector<std::pair<SlotId, ExpertKey>> held;
  std::set<uint32_t> loading;
  for (int step = 0; step < 20000; ++step) {
    const ExpertKey key = Key(static_cast<int>(random() % 3), static_cast<int>(random() % 5));
    if (random() % 8 == 0) {
      table.Drop(key);
      const bool is_held = std::ranges::contains(held, key, &std::pair<SlotId, ExpertKey>::second);
      ASSERT_EQ(table.contains(key), is_held);
    }
    if (random() % 2 == 0) {
      if (const auto p = table.Request(key, random() % 4 == 0 ? Use::kPrefill : Use::kDecode)) {
        for (const auto& [slot, other] : held) ASSERT_TRUE((slot == p->slot) == (other == key));
        if (p->was == Was::kAbsent) {
          ASSERT_TRUE(loading.insert(p->slot.value).second);
        }
        held.emplace_back(p->slot, key);
      }
    } else if (!held.empty()) {
      const size_t i = random() % held.size();
      const SlotId slot = held[i].first;
      if (loading.erase(slot.value) > 0) {
        if (random() % 5 == 0) {
          table.Failed(slot);
          std::erase_if(held, [&](const auto& h) {
            if (h.first == slot) table.Unpin(slot);
            return h.first == slot;
          });
          continue;
        }
        table.Landed(slot);
      }
      table.Unpin(slot);
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  EXPECT_GT(table.stats().evictions, 100U);
  EXPECT_EQ(table.stats().requests, table.stats().hits + table.stats().misses);
}

// Guesses: neither requests nor hits; the wrong ones leave first, whatever the policy thinks.
TEST(SlotTable, AWrongGuessIsTheFirstToLeave) {
  SlotTable table = Table(3);
  Use1(table, Key(0, 0));
  Use1(table, Key(0, 1));
  Use1(table, Key(0, 2), Use::kPrefetch);
  EXPECT_EQ(table.stats().requests, 2U);
  EXPECT_EQ(table.stats().prefetches, 1U);
  EXPECT_EQ(Use1(table, Key(0, 3)).evicted, Key(0, 2));
  EXPECT_EQ(table.stats().used_prefetches, 0U);
}

TEST(SlotTable, ARightGuessIsAHitAndStaysLikeOthers) {
  SlotTable table = Table(2);
  Use1(table, Key(0, 0));
  Use1(table, Key(0, 1), Use::kPrefetch);
  EXPECT_EQ(Use1(table, Key(0, 1)).was, Was::kReady);
  EXPECT_EQ(table.stats().used_prefetches, 1U);
  EXPECT_EQ(table.stats().hits, 1U);
  EXPECT_EQ(Use1(table, Key(0, 2)).evicted, Key(0, 0));
  Use1(table, Key(0, 1));
  EXPECT_EQ(table.stats().used_prefetches, 1U);  // once
}

TEST(SlotTable, AGuessAboutAResidentPinsItAndTouchesNothing) {
  SlotTable table = Table(2);
  Use1(table, Key(0, 0));
  Use1(table, Key(0, 1));
  const auto kept = table.Request(Key(0, 0), Use::kPrefetch);
  ASSERT_TRUE(kept.has_value());
  EXPECT_EQ(kept->was, Was::kReady);
  EXPECT_EQ(Use1(table, Key(0, 2)).evicted, Key(0, 1));  // the oldest is kept for now
  table.Unpin(kept->slot);
  EXPECT_EQ(Use1(table, Key(0, 3)).evicted, Key(0, 0));  // and is the oldest still
  EXPECT_EQ(table.stats().prefetches, 0U);
}

}  // namespace
}  // namespace moestro
