// SPDX-License-Identifier: MIT
#include "forward/dense/mixers/pooled_rows.h"

#include <algorithm>

#include "base/result.h"
#include "memory/memory_use.h"

namespace moestro {

uint64_t PooledRows::BytesFor(const Shape& shape, uint32_t rows, uint32_t n_ctx) {
  const uint64_t pools = shape.n_pool > 0 ? n_ctx / shape.n_pool : 0;
  const uint64_t attended = shape.top_k > 0 ? std::min<uint64_t>(shape.top_k, pools) : pools;
  // Positions lie in whole blocks of cells where nothing was forked.
  const uint64_t window = KvBlocks::BlocksFor(shape.window) + 1;
  return (rows * (attended + window) + pools) * sizeof(CellRun);
}

void PooledRows::Set(const Shape& shape, std::span<const RowCells> own,
                     std::span<const RowCells> all) {
  const size_t n_rows = own.size();
  shape_ = shape;
  runs_.clear();
  pools_.assign(n_rows, {});
  attended_.assign(n_rows, {});
  places_.assign(2 * n_rows, {});
  for (size_t r = 0; r < n_rows && shape.n_pool > 0; ++r) {
    pools_[r].n_positions = all[r].n_positions / shape.n_pool;
    const bool is_shared = r > 0 && all[r].runs.data() == all[r - 1].runs.data();
    places_[r] = is_shared ? places_[r - 1] : AddPools(all[r]);
  }
  for (size_t r = 0; r < n_rows; ++r) {
    Place& place = places_[n_rows + r];
    place.first = runs_.size();
    uint32_t n = pools_[r].n_positions;
    if (is_chosen(r)) {
      n = shape.top_k;
      runs_.resize(runs_.size() + n, CellRun{.first = 0, .count = 1});
    } else {
      AddKeysOfPools(places_[r], n);
    }
    attended_[r].n_positions = n + AddWindow(own[r]);
    place.count = runs_.size() - place.first;
  }
  // No run is added from here on.
  for (size_t r = 0; r < n_rows; ++r) {
    pools_[r].runs = At(places_[r]);
    attended_[r].runs = At(places_[n_rows + r]);
  }
}

// Adds the pools of a sequence, numbered as values are.
PooledRows::Place PooledRows::AddPools(const RowCells& all) {
  Place place{.first = runs_.size()};
  uint32_t position = 0;  // of a run's first cell
  for (const CellRun& run : all.runs) {
    const uint32_t last = shape_.n_pool - 1 - position % shape_.n_pool;  // of the next pool
    for (uint32_t i = last; i < run.count; i += shape_.n_pool) {
      const uint32_t cell = (run.first + i) / shape_.stride;
      const bool goes_on =
          runs_.size() > place.first && runs_.back().first + runs_.back().count == cell;
      if (goes_on) {
        ++runs_.back().count;
      } else {
        runs_.push_back({.first = cell, .count = 1});
      }
    }
    position += run.count;
  }
  place.count = runs_.size() - place.first;
  return place;
}

// Adds the first n of a sequence's pools, numbered as keys are.
void PooledRows::AddKeysOfPools(Place pools, uint32_t n) {
  for (size_t i = pools.first; n > 0; ++i) {
    CHECK(i < pools.first + pools.count);
    const CellRun run{.first = shape_.first_key + runs_[i].first,
                      .count = std::min(runs_[i].count, n)};
    runs_.push_back(run);
    n -= run.count;
  }
}

// Adds the last positions of a row; returns their number.
uint32_t PooledRows::AddWindow(const RowCells& own) {
  const uint32_t begin = own.n_positions - std::min(own.n_positions, shape_.window);
  CHECK(begin >= own.first);
  uint32_t position = own.first;
  for (const CellRun& run : own.runs) {
    const uint32_t skipped = std::min(run.count, begin - std::min(begin, position));
    const uint32_t end = std::min(position + run.count, own.n_positions);
    position += skipped;
    if (position < end) {
      runs_.push_back({.first = run.first + skipped, .count = end - position});
    }
    position += run.count - skipped;
    if (position >= own.n_positions) break;
  }
  return own.n_positions - begin;
}

void PooledRows::AddChosen(size_t row, std::span<const CellRun> chosen) {
  CHECK(is_chosen(row) && chosen.size() == shape_.top_k);
  CellRun* to = runs_.data() + places_[pools_.size() + row].first;
  for (const CellRun& run : chosen) {
    *to++ = {.first = shape_.first_key + run.first, .count = run.count};
  }
}

}  // namespace moestro
