// SPDX-License-Identifier: MIT
#include "forward/dense/step_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <vector>

namespace moestro {
namespace {

const std::vector<CellRun> kOne = {{.first = 0, .count = 1U << 20}};
const std::vector<CellRun> kOther = {{.first = 1U << 20, .count = 1U << 20}};

std::vector<RowCells> Rows(std::span<const CellRun> runs, uint32_t first, uint32_t n) {
  std::vector<RowCells> rows;
  for (uint32_t i = 0; i < n; ++i) rows.push_back({.runs = runs, .n_positions = first + i + 1});
  return rows;
}

TEST(SpanOf, GrowsSoThatARowHasFew) {
  EXPECT_EQ(SpanOf(0, 1), 512U);
  EXPECT_EQ(SpanOf(0, 8192), 512U);
  EXPECT_EQ(SpanOf(0, 8193), 1024U);
  EXPECT_EQ(SpanOf(0, 32000), 2048U);
  EXPECT_EQ(SpanOf(31000, 32000), 512U);
  // 16 spans' worth of positions that begin within a span.
  EXPECT_EQ(SpanOf(100, 8292), 1024U);
}

// Every row, head and position that a row attends to belongs to one task; a split task's positions
// to one span.
void ExpectEachOnce(std::span<const RowCells> rows, uint32_t window, AttentionTasks& tasks,
                    uint32_t n_head) {
  tasks.Cut(rows, window);
  std::set<std::tuple<uint32_t, uint32_t, uint32_t>> seen;  // row, head, first position
  uint64_t positions = 0;
  uint64_t expected = 0;
  for (const RowCells& row : rows) expected += row.n_positions - FirstSeen(row, window);
  for (const AttentionTasks::Task& task : tasks.tasks()) {
    const AttentionTasks::Tile& tile = tasks.tiles()[task.tile];
    ASSERT_LE(tile.count * task.n_heads, tasks.tile_queries());
    if (tasks.is_split()) {
      EXPECT_EQ(task.begin / tile.span, (task.end - 1) / tile.span);
      ASSERT_LE(task.first_query + tile.count * task.n_heads, tasks.split_queries());
    }
    for (uint32_t r = tile.first; r < tile.first + tile.count; ++r) {
      EXPECT_EQ(SpanOf(FirstSeen(rows[r], window), rows[r].n_positions), tile.span);
      EXPECT_EQ(rows[r].runs.data(), rows[tile.first].runs.data());
      for (uint32_t h = task.first_head; h < task.first_head + task.n_heads; ++h) {
        EXPECT_TRUE(seen.emplace(r, h, task.begin).second);
      }
      const uint32_t begin = std::max(task.begin, FirstSeen(rows[r], window));
      const uint32_t end = std::min(task.end, rows[r].n_positions);
      positions += uint64_t{end - std::min(begin, end)} * task.n_heads;
    }
  }
  EXPECT_EQ(positions, expected * n_head);
}

TEST(AttentionTasks, EachHeadSeesEachPositionOnce) {
  std::vector<RowCells> mixed = Rows(kOne, 8100, 120);  // beyond 8192: wider spans
  mixed.append_range(Rows(kOther, 40000, 1));
  mixed.append_range(Rows(kOne, 0, 3));
  const std::vector<std::vector<RowCells>> steps = {
      Rows(kOne, 0, 1), Rows(kOne, 31999, 1), Rows(kOne, 8191, 3), Rows(kOne, 600, 512), mixed};
  for (const auto& [n_head, n_head_kv] :
       {std::pair{16U, 1U}, {128U, 1U}, {32U, 4U}, {20U, 1U}, {16U, 16U}, {200U, 200U}}) {
    for (const uint32_t threads : {1U, 2U, 7U, 64U}) {
      AttentionTasks tasks(n_head, n_head_kv, threads);
      for (const std::vector<RowCells>& rows : steps) {
        for (const uint32_t window : {0U, 700U}) ExpectEachOnce(rows, window, tasks, n_head);
      }
    }
  }
}

// Each part of the heads attends to cells of its own: those of one part make longer tiles.
TEST(AttentionTasks, PartsOfHeadsHaveTheirOwnCells) {
  constexpr uint32_t kParts = 4;
  std::vector<std::vector<CellRun>> own(20, kOther);
  std::vector<RowCells> rows;  // [row][part]
  for (uint32_t r = 0; r < own.size(); ++r) {
    for (uint32_t part = 0; part < kParts; ++part) {
      const std::vector<CellRun>& runs = part == 1 ? own[r] : kOne;
      rows.push_back({.runs = runs, .n_positions = part == 1 ? 700 : 600 + r});
    }
  }
  for (const uint32_t threads : {1U, 2U, 64U}) {
    AttentionTasks tasks(16, 8, threads, kParts);
    tasks.Cut(rows, 0);
    std::set<std::tuple<uint32_t, uint32_t, uint32_t>> seen;  // row, head, first position
    uint64_t positions = 0;
    for (const AttentionTasks::Task& task : tasks.tasks()) {
      const AttentionTasks::Tile& tile = tasks.tiles()[task.tile];
      EXPECT_EQ(task.kv_head / 2, tile.choice);
      EXPECT_EQ(task.first_head / 4, tile.choice);
      EXPECT_LE(tile.count, tile.choice == 1 ? 1U : 20U);
      for (uint32_t r = 0; r < tile.count; ++r) {
        const RowCells& row = tasks.CellsOf(rows, tile, r);
        EXPECT_EQ(&row, &rows[(tile.first + r) * kParts + tile.choice]);
        for (uint32_t h = task.first_head; h < task.first_head + task.n_heads; ++h) {
          EXPECT_TRUE(seen.emplace(tile.first + r, h, task.begin).second);
        }
        const uint32_t end = std::min(task.end, row.n_positions);
        positions += uint64_t{end - std::min(task.begin, end)} * task.n_heads;
      }
    }
    uint64_t expected = 0;
    for (const RowCells& row : rows) expected += uint64_t{row.n_positions} * 4;
    EXPECT_EQ(positions, expected);
  }
}

TEST(AttentionTasks, ThreadsHaveWorkBehindALongContext) {
  const std::vector<RowCells> row = Rows(kOne, 31999, 1);
  for (const uint32_t threads : {2U, 8U, 16U, 64U}) {
    AttentionTasks tasks(16, 1, threads);
    tasks.Cut(row, 0);
    EXPECT_TRUE(tasks.is_split());
    EXPECT_GE(tasks.tasks().size(), threads);
  }
  // Keys are converted once where that gives each thread enough to do.
  AttentionTasks tasks(16, 1, 2);
  tasks.Cut(row, 0);
  EXPECT_EQ(tasks.tasks().front().n_heads, 16U);
  // A short context has one span: threads share the heads.
  tasks.Cut(Rows(kOne, 99, 1), 0);
  EXPECT_FALSE(tasks.is_split());
  EXPECT_EQ(tasks.tasks().size(), 2U);
}

TEST(AttentionTasks, PromptsAreNotSplit) {
  AttentionTasks tasks(32, 4, 2);
  tasks.Cut(Rows(kOne, 4096, 512), 0);
  EXPECT_FALSE(tasks.is_split());
  EXPECT_EQ(tasks.tasks().size(), 4U * 512U / 16U);
}

}  // namespace
}  // namespace moestro
