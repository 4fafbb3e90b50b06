// SPDX-License-Identifier: MIT
// Cells that rows of pooled attention attend to: those of pools, in order, and then those of the
// last positions. Pure bookkeeping on the engine thread, but for AddChosen().
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "forward/dense/step_rows.h"

namespace moestro {

class PooledRows {
 public:
  struct Shape {
    uint32_t window = 0;
    uint32_t n_pool = 0;     // positions of a pool; 0: no pools
    uint32_t stride = 1;     // cells of positions for each cell of a pool
    uint32_t first_key = 0;  // cell of the first pool among keys
    uint32_t top_k = 0;      // pools that are chosen where there are more; 0: all are attended to
  };

  // Bytes of the cells of so many rows, of texts of n_ctx positions.
  static uint64_t BytesFor(const Shape& shape, uint32_t rows, uint32_t n_ctx);
  // Sets the rows. own: the cells of the last positions of each row, all: those of all positions.
  // Rows of one sequence share their runs.
  void Set(const Shape& shape, std::span<const RowCells> own, std::span<const RowCells> all);

  // The values of each row's full pools, in order: n_positions is their number.
  std::span<const RowCells> pools() const { return pools_; }
  // The keys that each row attends to. Of a row whose pools are chosen, those of the first top_k
  // cells are set by AddChosen().
  std::span<const RowCells> attended() const { return attended_; }
  bool is_chosen(size_t row) const {
    return shape_.top_k > 0 && pools_[row].n_positions > shape_.top_k;
  }
  // Sets a row's chosen pools, given by their values. Threads may set different rows.
  void AddChosen(size_t row, std::span<const CellRun> chosen);

 private:
  // Runs [first, first + count) of runs_.
  struct Place {
    size_t first = 0;
    size_t count = 0;
  };
  std::span<const CellRun> At(Place place) const {
    return std::span(runs_).subspan(place.first, place.count);
  }
  Place AddPools(const RowCells& all);
  void AddKeysOfPools(Place pools, uint32_t n);
  uint32_t AddWindow(const RowCells& own);

  Shape shape_;
  std::vector<CellRun> runs_;  // of pools_, then of attended_
  std::vector<RowCells> pools_;
  std::vector<RowCells> attended_;
  std::vector<Place> places_;  // scratch: [row], of pools and then of what is attended to
};

}  // namespace moestro
