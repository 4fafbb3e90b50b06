// SPDX-License-Identifier: MIT
#include "forward/dense/mixers/position_indexer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <span>
#include <thread>
#include <tuple>
#include <vector>

#include "compute/backend_buffer.h"
#include "compute/cpu_device.h"

namespace moestro {
namespace {

constexpr uint32_t kIndexedDim = 32;
constexpr uint32_t kIndexedCells = 3000;
constexpr uint32_t kContextOfRows = 2048;

// 300 positions in pieces, none of which ends where a block of positions does.
const std::vector<CellRun> kPieces = {
    {.first = 400, .count = 101}, {.first = 7, .count = 150}, {.first = 200, .count = 49}};
// The same positions, and 1,700 behind them.
const std::vector<CellRun> kManyPieces = {{.first = 400, .count = 101},
                                          {.first = 7, .count = 150},
                                          {.first = 200, .count = 149},
                                          {.first = 1900, .count = 1000},
                                          {.first = 1001, .count = 600}};

// The number of threads that a team has, and whether each shall begin before one goes on.
struct IndexerTeam {
  uint32_t threads = 2;
  bool wait_for_all = false;
};

class PositionIndexerTest : public testing::Test {
 protected:
  PositionIndexerTest() {
    std::mt19937 random(11);
    std::normal_distribution<float> normal;
    keys_.resize(size_t{kIndexedCells} * kIndexedDim);
    for (float& x : keys_) x = normal(random);
  }

  // The positions that rows choose, [row][choice][position].
  std::vector<std::vector<std::vector<uint32_t>>> Choose(const IndexerSpec& spec,
                                                         std::span<const RowCells> rows,
                                                         std::span<const float> queries,
                                                         const IndexerTeam& team = {}) {
    const auto n_rows = static_cast<uint32_t>(rows.size());
    CpuDevice device = *CpuDevice::Open(team.threads);
    looking_.clear();
    StopSignal stop([&] {
      if (team.wait_for_all) WaitForLooks(team.threads);
      return false;
    });
    auto indexer =
        *PositionIndexer::Create(spec, KvType::kF32, kContextOfRows, team.threads, &stop);
    chosen_ = *ChosenPositions::Create(n_rows, spec, kContextOfRows);
    chosen_->Begin(0, rows);
    GraphArena arena(device.backend(), 16);
    ggml_context* ctx = arena.Begin();
    auto buffer = *BackendBuffer::OnHost(1 << 20);
    ggml_tensor* q = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, kIndexedDim, spec.n_head, n_rows);
    buffer.Place(q, 0);
    std::memcpy(q->data, queries.data(), ggml_nbytes(q));
    ggml_tensor* node = indexer->Node(ctx, q, nullptr);
    buffer.Place(node, 1 << 19);
    ggml_build_forward_expand(arena.graph(), node);
    indexer->Bind({.keys = reinterpret_cast<const std::byte*>(keys_.data()),
                   .cell_bytes = kIndexedDim * sizeof(float),
                   .first = 0,
                   .visible = rows,
                   .chosen = chosen_.get()});
    EXPECT_TRUE(arena.Run());
    std::vector<std::vector<std::vector<uint32_t>>> found(n_rows);
    const std::span<const RowCells> cells = chosen_->rows(0, n_rows);
    for (size_t i = 0; i < cells.size(); ++i) {
      std::vector<uint32_t>& positions = found[i / spec.n_choices()].emplace_back();
      uint32_t left = cells[i].n_positions;
      for (const CellRun& run : cells[i].runs) {
        for (uint32_t c = 0; c < run.count && left > 0; ++c, --left) {
          positions.push_back(PositionOf(run.first + c));
        }
      }
    }
    return found;
  }

  // Waits, but not for ever, until so many threads have begun.
  void WaitForLooks(uint32_t threads) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    for (;;) {
      {
        const std::scoped_lock lock(looks_);
        looking_.insert(std::this_thread::get_id());
        if (looking_.size() >= threads) return;
      }
      if (std::chrono::steady_clock::now() > deadline) return;
      std::this_thread::yield();
    }
  }

  static uint32_t PositionOf(uint32_t cell) {
    uint32_t at = 0;
    for (const CellRun& run : kManyPieces) {
      if (cell >= run.first && cell < run.first + run.count) return at + cell - run.first;
      at += run.count;
    }
    ADD_FAILURE() << "cell " << cell << " is not the sequence's";
    return 0;
  }
  static uint32_t CellOf(uint32_t position) {
    for (const CellRun& run : kManyPieces) {
      if (position < run.count) return run.first + position;
      position -= run.count;
    }
    return 0;
  }

  // By the definition: the best blocks of one head's own, the last ones always among them.
  std::vector<uint32_t> Expected(const IndexerSpec& spec, uint32_t n_positions,
                                 const float* query) const {
    const uint32_t n = (n_positions + spec.n_pool - 1) / spec.n_pool;
    std::vector<std::pair<double, uint32_t>> blocks;
    for (uint32_t b = 0; b < n; ++b) {
      double most = -std::numeric_limits<double>::infinity();
      for (uint32_t p = b * spec.n_pool; p < std::min((b + 1) * spec.n_pool, n_positions); ++p) {
        const float* key = keys_.data() + size_t{CellOf(p)} * kIndexedDim;
        double score = 0.0;
        for (uint32_t d = 0; d < kIndexedDim; ++d) score += double{query[d]} * key[d];
        most = std::max(most, score);
      }
      if (b + spec.n_last_pools >= n) most = std::numeric_limits<double>::infinity();
      blocks.emplace_back(-most, b);
    }
    std::ranges::sort(blocks);
    blocks.resize(std::min<size_t>(blocks.size(), spec.top_k / spec.n_pool));
    std::vector<uint32_t> positions;
    for (const auto& [score, b] : blocks) {
      for (uint32_t p = b * spec.n_pool; p < std::min((b + 1) * spec.n_pool, n_positions); ++p) {
        positions.push_back(p);
      }
    }
    std::ranges::sort(positions);
    return positions;
  }

  std::vector<float> keys_;
  std::unique_ptr<ChosenPositions> chosen_;
  std::mutex looks_;
  std::set<std::thread::id> looking_;
};

TEST_F(PositionIndexerTest, EachHeadChoosesItsOwnBlocks) {
  std::mt19937 random(12);
  std::normal_distribution<float> normal;
  std::vector<RowCells> rows;
  for (const uint32_t n : {1U, 24U, 25U, 33U, 64U, 65U, 71U, 72U, 73U, 299U, 300U}) {
    rows.push_back({.runs = kPieces, .n_positions = n});
  }
  for (const auto& [pool, top_k, last] :
       {std::tuple{8U, 24U, 1U}, {8U, 32U, 2U}, {8U, 16U, 2U}, {1U, 20U, 1U}, {24U, 72U, 1U}}) {
    const IndexerSpec spec{.n_head = 3,
                           .head_dim = kIndexedDim,
                           .top_k = top_k,
                           .n_pool = pool,
                           .n_last_pools = last,
                           .score = PoolScore::kBestPosition};
    std::vector<float> queries(rows.size() * spec.n_head * kIndexedDim);
    for (float& x : queries) x = normal(random);
    const auto chosen = Choose(spec, rows, queries);
    bool differ = false;
    for (size_t r = 0; r < rows.size(); ++r) {
      ASSERT_EQ(chosen[r].size(), spec.n_head);
      for (uint32_t h = 0; h < spec.n_head; ++h) {
        const float* query = queries.data() + (r * spec.n_head + h) * kIndexedDim;
        EXPECT_EQ(chosen[r][h], Expected(spec, rows[r].n_positions, query))
            << rows[r].n_positions << " positions in blocks of " << pool << ", head " << h;
        differ = differ || chosen[r][h] != chosen[r][0];
      }
    }
    EXPECT_EQ(differ, top_k / pool > last) << pool;
    EXPECT_FALSE(chosen_->TakeDamage());
  }
}

// One row is shared by all threads, and its choice is that of one thread, and of plain loops; so
// are rows that are no more than threads.
TEST_F(PositionIndexerTest, ThreadsShareAFewRows) {
  std::mt19937 random(13);
  std::normal_distribution<float> normal;
  for (const auto& [pool, top_k, last] :
       {std::tuple{1U, 100U, 1U}, {8U, 64U, 1U}, {24U, 240U, 2U}, {128U, 512U, 1U}}) {
    const IndexerSpec spec{.n_head = 3,
                           .head_dim = kIndexedDim,
                           .top_k = top_k,
                           .n_pool = pool,
                           .n_last_pools = last,
                           .score = PoolScore::kBestPosition};
    for (const std::vector<uint32_t>& lengths :
         {std::vector<uint32_t>{2000}, {1999, 20, 1281}, {700, 2000, 1500, 1024}}) {
      std::vector<RowCells> rows;
      for (const uint32_t n : lengths) rows.push_back({.runs = kManyPieces, .n_positions = n});
      std::vector<float> queries(rows.size() * spec.n_head * kIndexedDim);
      for (float& x : queries) x = normal(random);
      const auto alone = Choose(spec, rows, queries, {.threads = 1});
      for (size_t r = 0; r < rows.size(); ++r) {
        for (uint32_t h = 0; h < spec.n_head; ++h) {
          const float* query = queries.data() + (r * spec.n_head + h) * kIndexedDim;
          if (!chosen_->is_chosen(rows[r])) continue;
          EXPECT_EQ(alone[r][h], Expected(spec, rows[r].n_positions, query)) << pool << ", " << h;
        }
      }
      for (const uint32_t threads : {2U, 3U}) {
        EXPECT_EQ(Choose(spec, rows, queries, {.threads = threads}), alone) << threads;
      }
      if (rows.size() > 1) continue;
      EXPECT_EQ(Choose(spec, rows, queries, {.threads = 3, .wait_for_all = true}), alone);
      EXPECT_EQ(looking_.size(), 3U);
    }
  }
}

// The same of pools with keys of their own, whose heads' scores are summed.
TEST_F(PositionIndexerTest, ThreadsShareTheKeysOfPools) {
  const std::vector<RowCells> rows = {{.runs = kManyPieces, .n_positions = 1999},
                                      {.runs = kManyPieces, .n_positions = 2000}};
  const IndexerSpec spec{.n_head = 8, .head_dim = kIndexedDim, .top_k = 256, .n_pool = 4};
  std::vector<float> queries;
  for (size_t i = 0; i < rows.size() * spec.n_head * kIndexedDim; ++i) {
    queries.push_back(std::cos(static_cast<float>(i)));
  }
  const auto alone = Choose(spec, rows, queries, {.threads = 1});
  EXPECT_EQ(alone[1][0].size(), spec.top_k);
  for (const uint32_t threads : {2U, 3U}) {
    EXPECT_EQ(Choose(spec, rows, queries, {.threads = threads, .wait_for_all = true}), alone);
    EXPECT_EQ(looking_.size(), threads);
  }
}

// Two heads that each choose one block of eight beside the last one.
constexpr IndexerSpec kTwoChoices{.n_head = 2,
                                  .head_dim = kIndexedDim,
                                  .top_k = 16,
                                  .n_pool = 8,
                                  .n_last_pools = 1,
                                  .score = PoolScore::kBestPosition};

TEST_F(PositionIndexerTest, ScoresThatAreNoNumbersAreReported) {
  const std::vector<RowCells> rows = {{.runs = kPieces, .n_positions = 60}};
  std::vector<float> queries(size_t{2} * kIndexedDim, 1.0F);
  queries[kIndexedDim + 3] = std::numeric_limits<float>::quiet_NaN();
  Choose(kTwoChoices, rows, queries);
  EXPECT_TRUE(chosen_->TakeDamage());
}

// A step of other rows may run between two layers.
TEST_F(PositionIndexerTest, AChoiceIsTakenAsideAndGivenBack) {
  const std::vector<RowCells> rows = {{.runs = kPieces, .n_positions = 60},
                                      {.runs = kPieces, .n_positions = 61}};
  std::vector<float> queries;
  for (size_t i = 0; i < rows.size() * 2 * kIndexedDim; ++i) {
    queries.push_back(std::sin(static_cast<float>(i)));
  }
  Choose(kTwoChoices, rows, queries);
  const auto runs_of = [&] {
    std::vector<CellRun> runs;
    for (const RowCells& row : chosen_->rows(0, rows.size())) runs.append_range(row.runs);
    return runs;
  };
  const std::vector<CellRun> before = runs_of();
  const ChosenPositions::SavedChoice kept = chosen_->Take(rows.size());
  for (uint32_t r = 0; r < rows.size(); ++r) {
    for (uint32_t h = 0; h < 2; ++h) std::ranges::fill(chosen_->runs(r, h, rows[r]), CellRun{});
  }
  chosen_->Begin(0, std::vector<RowCells>{{.runs = kPieces, .n_positions = 3}});
  EXPECT_NE(runs_of(), before);
  chosen_->Give(kept);
  EXPECT_EQ(runs_of(), before);
}

}  // namespace
}  // namespace moestro
