// SPDX-License-Identifier: MIT
// Which positions are held, without any values.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "memory/recent_cells.h"
#include "memory/sequence.h"

namespace moestro {
namespace {

constexpr uint32_t kWindow = 100;

std::vector<Token> EqualTokens(size_t n) { return std::vector<Token>(n, 1); }

class RecentCellsTest : public testing::Test {
 protected:
  explicit RecentCellsTest(uint32_t sequences = 1, uint32_t chunk = 64)
      : chunk_(chunk), table_(4096, 0, RecentRoom::Of(kWindow, sequences, chunk)) {}

  // A step of n tokens, chunk by chunk.
  void Go(SequenceId id, uint32_t n) {
    ASSERT_TRUE(table_.Append(id, EqualTokens(n)));
    AdvanceBy(id, n);
    table_.Commit(id);
  }
  void AdvanceBy(SequenceId id, uint32_t n) {
    for (uint32_t done = 0; done < n; done += chunk_) {
      const Status advanced = table_.Advance(id, held(id).length() + std::min(chunk_, n - done));
      ASSERT_TRUE(advanced) << advanced.error().message;
      table_.TrimWindow(id);
    }
  }
  const KvTimeline& held(SequenceId id) const { return table_.Find(id)->recent.now; }

  uint32_t chunk_;
  SequenceTable table_;
};

TEST_F(RecentCellsTest, HoldsAWindowHoweverLongTheText) {
  const SequenceId id = table_.New();
  Go(id, 20000);
  EXPECT_EQ(held(id).length(), 20000U);
  EXPECT_LE(held(id).begin(), 20000U - (kWindow - 1));
  EXPECT_GE(held(id).begin(), 20000U - kWindow - 128);
  EXPECT_EQ(held(id).begin() % RecentRoom::kAlignment, 0U);
  for (int i = 0; i < 500; ++i) {
    Go(id, 1);
    const uint32_t length = held(id).length();
    // The row that comes next sees the window before it.
    ASSERT_LE(held(id).begin(), length + 1 - kWindow);
    ASSERT_GE(held(id).begin() + kWindow + 2 * RecentRoom::kAlignment, length);
  }
}

// Commits several times with one length, as the engine does for each row.
TEST_F(RecentCellsTest, APromptCanBeCutBackALittleHoweverOftenItsStepEnds) {
  for (uint32_t length = 1000; length < 1130; ++length) {
    const SequenceId id = table_.New();
    ASSERT_NO_FATAL_FAILURE(Go(id, length));
    table_.Commit(id);
    for (const uint32_t back : {1U, 32U, 64U}) {
      EXPECT_EQ(table_.Reach(id, length - back), length - back) << length;
    }
    table_.Drop(id);
  }
}

TEST_F(RecentCellsTest, RowsThatAreComputedAgainKeepTheirCells) {
  const SequenceId id = table_.New();
  Go(id, 500);
  ASSERT_TRUE(table_.Append(id, EqualTokens(1)));
  ASSERT_TRUE(table_.Advance(id, 501));
  const uint32_t begin = held(id).begin();
  const uint32_t cell = held(id).cell(500);
  ASSERT_TRUE(table_.Advance(id, 501));
  EXPECT_EQ(held(id).length(), 501U);
  EXPECT_EQ(held(id).begin(), begin);
  EXPECT_EQ(held(id).cell(500), cell);
  table_.Commit(id);
}

TEST_F(RecentCellsTest, AForkReachesWhatItsOriginDoes) {
  const SequenceId id = table_.New();
  Go(id, 900);
  table_.Keep(id);
  Go(id, 700);
  Go(id, 800);
  const SequenceId fork = table_.Fork(id);
  for (uint32_t p = 0; p <= 2400; p += 10)
    EXPECT_EQ(table_.Reach(fork, p), table_.Reach(id, p)) << p;
}

class RecentCellsOfTwo : public RecentCellsTest {
 protected:
  RecentCellsOfTwo() : RecentCellsTest(2) {}
};

TEST_F(RecentCellsOfTwo, LongPromptsOfOneStepHaveRoom) {
  const SequenceId first = table_.New();
  const SequenceId second = table_.New();
  ASSERT_TRUE(table_.Append(first, EqualTokens(9000)));
  ASSERT_TRUE(table_.Append(second, EqualTokens(9000)));
  ASSERT_NO_FATAL_FAILURE(AdvanceBy(first, 9000));
  ASSERT_NO_FATAL_FAILURE(AdvanceBy(second, 9000));
  table_.Commit(first);
  table_.Commit(second);
}

TEST_F(RecentCellsTest, ShortTextsAreReachedEverywhere) {
  const SequenceId id = table_.New();
  Go(id, 90);
  for (uint32_t p = 0; p <= 90; ++p) EXPECT_EQ(table_.Reach(id, p), p);
}

TEST_F(RecentCellsTest, LongTextsGoOnFromTheirLastStepAndFromKeptPositions) {
  const SequenceId id = table_.New();
  Go(id, 1000);
  table_.Keep(id);
  Go(id, 500);
  Go(id, 5);
  for (uint32_t p = 1500; p <= 1505; ++p) EXPECT_EQ(table_.Reach(id, p), p);
  EXPECT_EQ(table_.Reach(id, 1200), 1000U) << "kept";
  EXPECT_EQ(table_.Reach(id, 999), 999U) << "before a kept position a little more is held";
  EXPECT_EQ(table_.Reach(id, 700), 0U);
  table_.CutBack(id, 1502);
  EXPECT_EQ(held(id).length(), 1502U);
  Go(id, 3);
  table_.CutBack(id, 1000);
  EXPECT_EQ(held(id).length(), 1000U);
  EXPECT_LE(held(id).begin(), 1000 - (kWindow - 1));
  Go(id, 300);
  EXPECT_EQ(held(id).length(), 1300U);
}

TEST_F(RecentCellsTest, AStepThatFailsLeavesWhatItBeganWith) {
  const SequenceId id = table_.New();
  Go(id, 1000);
  const std::vector<CellRun> before = held(id).Runs();
  ASSERT_TRUE(table_.Append(id, EqualTokens(400)));
  AdvanceBy(id, 320);  // of 400 appended
  for (uint32_t p = 1400; p > 1000;) table_.CutBack(id, --p);
  EXPECT_EQ(held(id).length(), 1000U);
  EXPECT_EQ(held(id).Runs(), before);
  Go(id, 400);
  EXPECT_EQ(held(id).length(), 1400U);
}

TEST_F(RecentCellsTest, AStepThatFailsBeforeItBeganChangesNothing) {
  const SequenceId id = table_.New();
  Go(id, 1000);
  const std::vector<CellRun> before = held(id).Runs();
  ASSERT_TRUE(table_.Append(id, EqualTokens(4)));
  table_.CutBack(id, 1000);
  EXPECT_EQ(held(id).Runs(), before);
  Go(id, 4);
  EXPECT_EQ(table_.Reach(id, 1001), 1001U);
}

TEST_F(RecentCellsTest, ForksGoOnApart) {
  const SequenceId id = table_.New();
  Go(id, 1000);
  const SequenceId fork = table_.Fork(id);
  Go(id, 7);
  Go(fork, 5);
  const KvTimeline& a = held(id);
  const KvTimeline& b = held(fork);
  for (uint32_t p = 960; p < 1000; ++p) EXPECT_EQ(a.cell(p), b.cell(p));
  for (uint32_t p = 1000; p < 1005; ++p) EXPECT_NE(a.cell(p), b.cell(p));
  table_.Drop(id);
  Go(fork, 1000);
  table_.Drop(fork);
  EXPECT_EQ(table_.available_windows(), table_.recent_room().places);
}

TEST_F(RecentCellsTest, KeptPositionsGoWhenOthersNeedTheirCells) {
  std::vector<SequenceId> ids;
  for (uint32_t i = 0; i < table_.recent_room().places; ++i) {
    ids.push_back(table_.New());
    for (int step = 0; step < 6; ++step) {
      Go(ids.back(), 700);
      table_.Keep(ids.back());
    }
  }
  EXPECT_EQ(table_.available_windows(), 0U);
  EXPECT_EQ(table_.Reach(ids.front(), 4199), 4199U) << "no text loses its end";
  EXPECT_EQ(table_.Reach(ids.front(), 3000), 0U);
  for (const SequenceId id : ids) Go(id, 3000);
}

TEST_F(RecentCellsTest, ARestoredTextHasItsWindow) {
  const SequenceId id = table_.New();
  ASSERT_TRUE(table_.Append(id, EqualTokens(5000)));
  ASSERT_TRUE(table_.FillWindows(id, {}));
  table_.Commit(id);
  EXPECT_EQ(table_.Reach(id, 5000), 5000U);
  EXPECT_EQ(table_.Reach(id, 100), 0U);
  Go(id, 10);
}

TEST_F(RecentCellsTest, ARestoredTextHasWindowsBeforeKeptPositions) {
  const SequenceId id = table_.New();
  const std::vector<uint32_t> kept = {2000, 3000};
  ASSERT_TRUE(table_.Append(id, EqualTokens(5000)));
  ASSERT_TRUE(table_.FillWindows(id, kept));
  table_.Commit(id);
  EXPECT_EQ(table_.Reach(id, 5000), 5000U);
  EXPECT_EQ(table_.Reach(id, 4000), 3000U);
  EXPECT_EQ(table_.Reach(id, 2900), 2000U);
  table_.CutBack(id, 3000);
  Go(id, 10);
  EXPECT_EQ(table_.Reach(id, 2500), 2000U);
}

TEST_F(RecentCellsTest, LostWindowsAreComputedAgainFromTheTokens) {
  const SequenceId id = table_.New();
  Go(id, 1000);
  table_.Keep(id);
  Go(id, 300);
  table_.LoseStates();
  EXPECT_EQ(table_.available_windows(), table_.recent_room().places);
  AdvanceBy(id, 1300);  // the sequence still has all tokens
  table_.Commit(id);
  EXPECT_EQ(table_.Reach(id, 1300), 1300U);
  EXPECT_EQ(table_.Reach(id, 1000), 0U) << "what was kept is lost";
  Go(id, 7);
}

// Compares cells with the marks that each sequence should hold; two sequences without a common
// prefix never share a cell.
TEST_F(RecentCellsTest, RandomCallsKeepCellsApart) {
  std::mt19937 random(7);
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  std::vector<SequenceId> ids;
  std::vector<std::vector<uint32_t>> written;  // by sequence: the mark of each position
  std::map<uint32_t, uint32_t> cells;          // the mark that a cell holds
  uint32_t mark = 0;
  const auto step = [&](size_t i, uint32_t n) {
    ASSERT_TRUE(table_.Append(ids[i], EqualTokens(n)));
    for (uint32_t done = 0; done < n;) {
      const uint32_t rows = std::min(chunk_, n - done);
      ASSERT_TRUE(table_.Advance(ids[i], held(ids[i]).length() + rows));
      const KvTimeline& now = held(ids[i]);
      for (uint32_t r = 0; r < rows; ++r, ++done) {
        const uint32_t position = static_cast<uint32_t>(written[i].size());
        cells[now.cell(position)] = ++mark;
        written[i].push_back(mark);
        for (uint32_t p = position + 1 - std::min(position + 1, kWindow); p <= position; ++p) {
          ASSERT_EQ(cells[now.cell(p)], written[i][p]) << "position " << p;
        }
      }
    }
    table_.Commit(ids[i]);
  };
  for (int call = 0; call < 400; ++call) {
    if (ids.size() < 3) {
      ids.push_back(table_.New());
      written.emplace_back();
    }
    const size_t i = below(static_cast<uint32_t>(ids.size()));
    const auto length = static_cast<uint32_t>(written[i].size());
    switch (below(6)) {
      case 0: {
        const uint32_t to = table_.Reach(ids[i], below(length + 1));
        table_.CutBack(ids[i], to);
        written[i].resize(to);
        break;
      }
      case 1:
        if (ids.size() >= 5) break;
        ids.push_back(table_.Fork(ids[i]));
        written.push_back(written[i]);
        break;
      case 2:
        table_.Drop(ids[i]);
        ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(i));
        written.erase(written.begin() + static_cast<std::ptrdiff_t>(i));
        break;
      case 3:
        table_.Keep(ids[i]);
        break;
      default:
        step(i, 1 + below(below(4) == 0 ? 300 : 6));
    }
  }
}

}  // namespace
}  // namespace moestro
