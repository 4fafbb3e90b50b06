// SPDX-License-Identifier: MIT
#include "forward/dense/mixers/pooled_rows.h"

#include <gtest/gtest.h>

#include <span>
#include <vector>

namespace moestro {
namespace {

std::vector<uint32_t> CellsOfRuns(const RowCells& row) {
  std::vector<uint32_t> cells;
  for (const CellRun& run : row.runs) {
    for (uint32_t i = 0; i < run.count && cells.size() < row.n_positions; ++i) {
      cells.push_back(run.first + i);
    }
  }
  return cells;
}

// Positions 0 to 63 in cells 96 to 127 and 32 to 63: a block has positions of one place in it.
const std::vector<CellRun> kAllCells = {{.first = 96, .count = 32}, {.first = 32, .count = 32}};
// The last positions, from 32 on, in cells of their own.
const std::vector<CellRun> kOwnCells = {{.first = 64, .count = 16}, {.first = 0, .count = 16}};

RowCells AllBefore(uint32_t position) { return {.runs = kAllCells, .n_positions = position + 1}; }
RowCells OwnBefore(uint32_t position) {
  return {.runs = kOwnCells, .n_positions = position + 1, .first = 32};
}

TEST(PooledRows, PoolsComeBeforeTheWindow) {
  PooledRows rows;
  const std::vector<RowCells> own = {OwnBefore(42), OwnBefore(43), OwnBefore(50)};
  const std::vector<RowCells> all = {AllBefore(42), AllBefore(43), AllBefore(50)};
  rows.Set({.window = 5, .n_pool = 4, .stride = 4, .first_key = 1000}, own, all);
  // Pools 0 to 7 lie in cells 24 to 31, those behind them from 8 on.
  EXPECT_EQ(CellsOfRuns(rows.pools()[0]),
            (std::vector<uint32_t>{24, 25, 26, 27, 28, 29, 30, 31, 8, 9}));
  EXPECT_EQ(rows.pools()[1].n_positions, 11U);  // its own position ends one
  EXPECT_EQ(CellsOfRuns(rows.attended()[0]),
            (std::vector<uint32_t>{1024, 1025, 1026, 1027, 1028, 1029, 1030, 1031, 1008, 1009, 70,
                                   71, 72, 73, 74}));
  const std::vector<uint32_t> last = CellsOfRuns(rows.attended()[2]);
  EXPECT_EQ(std::vector(last.end() - 5, last.end()), (std::vector<uint32_t>{78, 79, 0, 1, 2}));
  EXPECT_EQ(last.size(), 12U + 5U);
}

TEST(PooledRows, AWindowIsCutAtTheBeginning) {
  PooledRows rows;
  const std::vector<RowCells> row = {AllBefore(2)};
  rows.Set({.window = 5, .n_pool = 4, .stride = 4, .first_key = 1000}, row, row);
  EXPECT_EQ(CellsOfRuns(rows.attended()[0]), (std::vector<uint32_t>{96, 97, 98}));
  rows.Set({.window = 2}, row, row);  // no pools
  EXPECT_EQ(CellsOfRuns(rows.attended()[0]), (std::vector<uint32_t>{97, 98}));
  EXPECT_EQ(rows.pools()[0].n_positions, 0U);
}

TEST(PooledRows, PoolsOfMoreThanABlockHaveTheirLastBlocksCell) {
  std::vector<CellRun> runs;
  for (const uint32_t block : {7U, 2U, 3U, 9U, 5U, 1U, 0U, 4U}) {
    runs.push_back({.first = block * 32, .count = 32});
  }
  const std::vector<RowCells> row = {{.runs = runs, .n_positions = 256}};
  PooledRows rows;
  rows.Set({.window = 1, .n_pool = 128, .stride = 32, .first_key = 10}, row, row);
  EXPECT_EQ(CellsOfRuns(rows.pools()[0]), (std::vector<uint32_t>{9, 4}));
  EXPECT_EQ(CellsOfRuns(rows.attended()[0]), (std::vector<uint32_t>{19, 14, 159}));
}

TEST(PooledRows, ChosenPoolsTakeTheirPlaces) {
  PooledRows rows;
  const std::vector<RowCells> own = {OwnBefore(32), OwnBefore(50)};
  const std::vector<RowCells> all = {AllBefore(11), AllBefore(50)};
  rows.Set({.window = 1, .n_pool = 4, .stride = 4, .first_key = 1000, .top_k = 3}, own, all);
  EXPECT_FALSE(rows.is_chosen(0));
  ASSERT_TRUE(rows.is_chosen(1));
  const std::vector<CellRun> chosen = {
      {.first = 24, .count = 1}, {.first = 31, .count = 1}, {.first = 9, .count = 1}};
  rows.AddChosen(1, chosen);
  EXPECT_EQ(CellsOfRuns(rows.attended()[0]), (std::vector<uint32_t>{1024, 1025, 1026, 64}));
  EXPECT_EQ(CellsOfRuns(rows.attended()[1]), (std::vector<uint32_t>{1024, 1031, 1009, 2}));
}

}  // namespace
}  // namespace moestro
