// SPDX-License-Identifier: MIT
#include "store/row_reads.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <set>
#include <vector>

namespace moestro {
namespace {

constexpr uint64_t kBlock = 4096;
const TableLayout kLayout{.table = {.file = 1, .offset = 1000, .length = uint64_t{90} * 100000},
                          .row_bytes = 90,
                          .block = kBlock};

TEST(RowReadsTest, EveryRowLiesInItsReadAndNoBlockIsReadInVain) {
  std::mt19937_64 random(5);
  std::set<uint64_t> chosen;
  while (chosen.size() < 3000) chosen.insert(random() % kLayout.n_rows());
  const std::vector<uint64_t> rows(chosen.begin(), chosen.end());
  std::set<uint64_t> needed;
  for (const uint64_t row : rows) {
    const Extent its = kLayout.ExtentOf(row);
    for (uint64_t b = its.offset / kBlock; b <= (its.offset + its.length - 1) / kBlock; ++b) {
      needed.insert(b);
    }
  }
  for (const uint64_t most : {kBlock, 4 * kBlock, 64 * kBlock}) {
    size_t next = 0;
    std::set<uint64_t> read_blocks;
    for (const RowRead& read : MergeRows(kLayout, rows, most)) {
      EXPECT_EQ(read.first, next);
      next += read.count;
      EXPECT_EQ(read.from.file, 1U);
      EXPECT_EQ(read.from.offset, kLayout.ExtentOf(rows[read.first]).offset);
      const Extent last = kLayout.ExtentOf(rows[next - 1]);
      EXPECT_EQ(read.from.offset + read.from.length, last.offset + last.length);
      const Window window = CoveringWindow(read.from, kBlock);
      if (read.count > 1) {
        EXPECT_LE(window.length, most);
      }
      for (uint64_t b = 0; b < window.length / kBlock; ++b) {
        read_blocks.insert(window.offset / kBlock + b);
      }
    }
    EXPECT_EQ(next, rows.size());
    EXPECT_EQ(read_blocks, needed) << most;
  }
  EXPECT_TRUE(MergeRows(kLayout, {}, kBlock).empty());
}

TEST(RowReadsTest, NeighboursComeTogether) {
  const std::vector<uint64_t> rows = {10, 11, 12, 5000, 5001};
  const std::vector<RowRead> reads = MergeRows(kLayout, rows, 16 * kBlock);
  ASSERT_EQ(reads.size(), 2U);
  EXPECT_EQ(reads[0].count, 3U);
  EXPECT_EQ(reads[1].first, 3U);
}

TEST(RowCacheTest, TheRowUsedLongestAgoGivesWay) {
  RowCache cache(2);
  EXPECT_EQ(cache.Insert(10), 0U);
  EXPECT_EQ(cache.Insert(20), 1U);
  EXPECT_EQ(cache.Find(10), 0U);
  EXPECT_EQ(cache.Insert(30), 1U);
  EXPECT_EQ(cache.Find(20), std::nullopt);
  EXPECT_EQ(cache.Find(10), 0U);
  EXPECT_EQ(cache.Find(30), 1U);
  EXPECT_EQ(RowCache(0).Insert(1), std::nullopt);
}

// Beside a list of rows, in order of their last use.
TEST(RowCacheTest, KeepsTheLastRows) {
  constexpr size_t kPlaces = 5;
  RowCache cache(kPlaces);
  std::vector<uint64_t> last;
  std::mt19937_64 random(9);
  for (int i = 0; i < 2000; ++i) {
    const uint64_t row = random() % 12;
    const auto known = std::ranges::find(last, row);
    EXPECT_EQ(cache.Find(row).has_value(), known != last.end());
    if (known != last.end()) last.erase(known);
    if (!cache.Find(row)) {
      EXPECT_TRUE(cache.Insert(row));
    }
    last.insert(last.begin(), row);
    if (last.size() > kPlaces) last.pop_back();
  }
}

}  // namespace
}  // namespace moestro
