// SPDX-License-Identifier: MIT
// Positions that the rows of a step attend to, where an indexer chooses them. A row with top_k
// positions or fewer attends to all of them, in its cells as they lie. A longer row attends to
// top_k positions, one by one, in order of position. Layers without an indexer of their own use the
// choice of the layer before them.
//
// Thread rule: the engine thread; while a graph runs, threads of the team may write different rows'
// runs, and SayDamaged().
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "core/cells.h"
#include "device/host_memory.h"
#include "forward/dense/attention.h"

namespace moestro {

class ChosenPositions {
 public:
  // For steps of up to `rows` rows of sequences of up to n_ctx positions, of which top_k are
  // chosen. kNoMemory.
  static Result<std::unique_ptr<ChosenPositions>> Create(uint32_t rows, uint32_t top_k,
                                                         uint32_t n_ctx);
  static uint64_t BytesFor(uint32_t rows, uint32_t top_k, uint32_t n_ctx);

  // Rows [first, first + visible.size()) of a step choose anew.
  void Begin(uint32_t first, std::span<const RowCells> visible);
  bool is_chosen(const RowCells& row) const { return top_k_ > 0 && row.n_positions > top_k_; }
  uint32_t top_k() const { return top_k_; }  // 0: no sequence is longer than top_k
  // The chosen cells of a row: top_k runs of one cell each.
  std::span<CellRun> runs(uint32_t row) const {
    auto* first = reinterpret_cast<CellRun*>(runs_.data());
    return {first + size_t{row} * top_k_, top_k_};
  }
  std::span<const RowCells> rows(uint32_t first, size_t count) const {
    return std::span(rows_).subspan(first, count);
  }
  // Reports NaN scores: the chosen positions are meaningless.
  void SayDamaged() { is_damaged_.store(true, std::memory_order_relaxed); }
  bool TakeDamage() { return is_damaged_.exchange(false, std::memory_order_relaxed); }

  // The choice of the first rows, kept while other rows use their places.
  struct Kept {
    std::vector<CellRun> runs;
    std::vector<RowCells> rows;
  };
  Kept Take(size_t count) const;
  void Give(const Kept& kept);

 private:
  ChosenPositions(uint32_t rows, uint32_t top_k) : top_k_(top_k), rows_(rows) {}

  uint32_t top_k_;
  HostMemory runs_;  // [row][top_k]
  std::vector<RowCells> rows_;
  std::atomic<bool> is_damaged_{false};
};

}  // namespace moestro
