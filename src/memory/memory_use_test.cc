// SPDX-License-Identifier: MIT
#include "memory/memory_use.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace moestro {
namespace {

constexpr uint32_t kP = KvBlocks::kPositions;

TEST(KvBlocks, OneSequenceFillsBlocksOneAfterTheOther) {
  KvBlocks blocks(3);
  KvTimeline t;
  ASSERT_TRUE(blocks.Extend(t, kP + 1));
  EXPECT_EQ(t.length(), kP + 1);
  EXPECT_EQ(t.cell(0), 0U);
  EXPECT_EQ(t.cell(kP), kP);
  EXPECT_EQ(blocks.free_blocks(), 1U);
  EXPECT_EQ(t.Runs(), (std::vector<CellRun>{{.first = 0, .count = kP + 1}}));
}

TEST(KvBlocks, RunningOutChangesNothing) {
  KvBlocks blocks(1);
  KvTimeline t;
  ASSERT_TRUE(blocks.Extend(t, 3));
  const Status refused = blocks.Extend(t, kP);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::kInvalidRequest);
  EXPECT_EQ(t.length(), 3U);
  EXPECT_TRUE(blocks.Extend(t, kP - 3));
}

TEST(KvBlocks, TheFirstToGoOnFillsTheSharedBlockTheOtherTakesItsOwn) {
  KvBlocks blocks(2);
  KvTimeline a;
  ASSERT_TRUE(blocks.Extend(a, 5));
  KvTimeline b = blocks.Fork(a);
  ASSERT_TRUE(blocks.Extend(a, 1));
  ASSERT_TRUE(blocks.Extend(b, 1));
  EXPECT_EQ(a.cell(4), b.cell(4));
  EXPECT_EQ(a.cell(5), 5U);
  EXPECT_EQ(b.cell(5), kP + 5);
  EXPECT_EQ(b.Runs(),
            (std::vector<CellRun>{{.first = 0, .count = 5}, {.first = kP + 5, .count = 1}}));
}

TEST(KvBlocks, CuttingBackASharedBlockDoesNotOverwriteTheOther) {
  KvBlocks blocks(2);
  KvTimeline a;
  ASSERT_TRUE(blocks.Extend(a, 8));
  KvTimeline b = blocks.Fork(a);
  blocks.CutBack(a, 4);
  ASSERT_TRUE(blocks.Extend(a, 1));
  EXPECT_NE(a.cell(4), b.cell(4));
}

TEST(KvBlocks, ALoneSequenceOverwritesWhatItHasCutOff) {
  KvBlocks blocks(1);
  KvTimeline a;
  ASSERT_TRUE(blocks.Extend(a, kP));
  blocks.CutBack(a, 2);
  ASSERT_TRUE(blocks.Extend(a, kP - 2));
  EXPECT_EQ(a.cell(2), 2U);
  blocks.CutBack(a, 0);
  EXPECT_EQ(blocks.free_blocks(), 1U);
}

// As in a beam search: the best sequences go on from any of the others, and sequences that are not
// continued are dropped. Cells that few sequences share are used again, so that the rest finds
// room.
TEST(KvBlocks, ForkedSequencesNeverNeedMoreThanTheirLengths) {
  std::mt19937 random(3);
  for (const uint32_t beams : {1U, 2U, 5U, 16U}) {
    constexpr uint32_t kLength = 5 * kP - 3;
    KvBlocks blocks(beams * KvBlocks::BlocksFor(kLength));
    std::vector<KvTimeline> live(1);
    ASSERT_TRUE(blocks.Extend(live[0], 7));
    while (live[0].length() < kLength) {
      std::vector<KvTimeline> next;
      for (uint32_t i = 0; i < beams; ++i)
        next.push_back(blocks.Fork(live[random() % live.size()]));
      for (KvTimeline& old : live) blocks.CutBack(old, 0);
      live = std::move(next);
      for (KvTimeline& one : live) ASSERT_TRUE(blocks.Extend(one, 1)) << beams;
    }
    for (KvTimeline& old : live) blocks.CutBack(old, 0);
    EXPECT_EQ(blocks.free_blocks(), blocks.blocks());
  }
}

// Cells hold the value that was written through the timeline that got them. Whatever happens to
// other timelines, each must find its own values again, and in the end all blocks are free.
TEST(KvBlocks, RandomForksAndCutsKeepEverySequencesValues) {
  std::mt19937 random(7);
  constexpr uint32_t kBlocks = 40;
  KvBlocks blocks(kBlocks);
  struct Live {
    KvTimeline timeline;
    std::vector<uint64_t> values;
  };
  std::vector<Live> live(1);
  std::vector<uint64_t> cells(size_t{kBlocks} * kP);
  uint64_t next = 1;
  for (int step = 0; step < 4000; ++step) {
    const size_t i = random() % live.size();
    switch (random() % 6) {
      case 0:
        if (live.size() < 8) {
          Live child{.timeline = blocks.Fork(live[i].timeline), .values = live[i].values};
          live.push_back(std::move(child));
        }
        break;
      case 1: {
        const auto length = static_cast<uint32_t>(random() % (live[i].values.size() + 1));
        blocks.CutBack(live[i].timeline, length);
        live[i].values.resize(length);
        break;
      }
      case 2:
        if (live.size() > 1) {
          blocks.CutBack(live[i].timeline, 0);
          live.erase(live.begin() + static_cast<std::ptrdiff_t>(i));
        }
        break;
      default: {
        const auto n = static_cast<uint32_t>(random() % 20 + 1);
        const auto at = static_cast<uint32_t>(live[i].values.size());
        if (!blocks.Extend(live[i].timeline, n)) break;
        for (uint32_t p = at; p < at + n; ++p) {
          cells[live[i].timeline.cell(p)] = next;
          live[i].values.push_back(next++);
        }
      }
    }
    for (const Live& one : live) {
      ASSERT_EQ(one.timeline.length(), one.values.size());
      uint32_t p = 0;
      for (const CellRun& run : one.timeline.Runs()) {
        for (uint32_t c = 0; c < run.count; ++c) ASSERT_EQ(cells[run.first + c], one.values[p++]);
      }
      ASSERT_EQ(p, one.values.size());
    }
  }
  for (Live& one : live) blocks.CutBack(one.timeline, 0);
  EXPECT_EQ(blocks.free_blocks(), kBlocks);
}

TEST(PositionsWorthSaving, AreTheLastAndThoseFarBehindTheOneBefore) {
  using Positions = std::vector<uint32_t>;
  EXPECT_EQ(PositionsWorthSaving(Positions{}), Positions{});
  EXPECT_EQ(PositionsWorthSaving(Positions{7}), Positions{7});
  EXPECT_EQ(PositionsWorthSaving(Positions{5, 6, 7, 8}), (Positions{5, 6, 7, 8}));
  EXPECT_EQ(PositionsWorthSaving(Positions{10, 11, 300, 310, 312, 500, 501}),
            (Positions{10, 300, 500, 501}));
}

}  // namespace
}  // namespace moestro
