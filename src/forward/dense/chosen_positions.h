// SPDX-License-Identifier: MIT
// Which positions the rows of a step attend to, where an indexer chooses them: a row with no more
// positions than are chosen attends to all of them, in its cells as they lie; another to so many,
// one by one, in order of position. Layers without an indexer of their own use what the layer
// before them chose.
//
// Thread rule: Begin(), Keep() and BringBack() on the engine thread; while a graph runs, threads of
// the team may write different rows' runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "forward/dense/attention.h"

namespace moestro {

class ChosenPositions {
 public:
  // For steps of up to `rows` rows of sequences of up to n_ctx positions. top_k 0: no layer
  // chooses.
  ChosenPositions(uint32_t rows, uint32_t top_k, uint32_t n_ctx)
      : top_k_(n_ctx > top_k ? top_k : 0), runs_(size_t{rows} * top_k_), rows_(rows) {}
  static uint64_t BytesFor(uint32_t rows, uint32_t top_k, uint32_t n_ctx) {
    return uint64_t{rows} * (n_ctx > top_k ? top_k : 0) * sizeof(CellRun);
  }

  // Rows [first, first + visible.size()) of a step choose anew.
  void Begin(uint32_t first, std::span<const RowCells> visible) {
    for (size_t r = 0; r < visible.size(); ++r) {
      rows_[first + r] = visible[r];
      if (!is_chosen(visible[r])) continue;
      rows_[first + r] = {.runs = runs(first + static_cast<uint32_t>(r)), .n_positions = top_k_};
    }
  }
  bool is_chosen(const RowCells& row) const { return top_k_ > 0 && row.n_positions > top_k_; }
  uint32_t top_k() const { return top_k_; }
  // Of one row: top_k runs of one cell each.
  std::span<CellRun> runs(uint32_t row) {
    return std::span(runs_).subspan(size_t{row} * top_k_, top_k_);
  }
  std::span<const RowCells> rows(uint32_t first, size_t count) const {
    return std::span(rows_).subspan(first, count);
  }

  // What the first rows have, while other rows use their places.
  struct Kept {
    std::vector<CellRun> runs;
    std::vector<RowCells> rows;
  };
  Kept Keep(size_t count) const {
    return {.runs = {runs_.begin(), runs_.begin() + static_cast<ptrdiff_t>(count * top_k_)},
            .rows = {rows_.begin(), rows_.begin() + static_cast<ptrdiff_t>(count)}};
  }
  void BringBack(const Kept& kept) {
    std::ranges::copy(kept.runs, runs_.begin());
    std::ranges::copy(kept.rows, rows_.begin());
  }

 private:
  uint32_t top_k_;
  std::vector<CellRun> runs_;   // [row][top_k]
  std::vector<RowCells> rows_;  // [row]
};

}  // namespace moestro
