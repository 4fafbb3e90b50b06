// SPDX-License-Identifier: MIT
// Cells that rows attend to: positions that an indexer chose, and masks for a device.
//
// Thread rule: the engine thread; while a graph runs, threads of the team may write different rows'
// runs, and SayDamaged().
#pragma once

#include <ggml-backend.h>
#include <ggml.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "compute/backend_buffer.h"
#include "compute/host_memory.h"
#include "core/kv_cells.h"
#include "core/model_spec.h"
#include "core/pool_rule.h"
#include "devices/device_link.h"
#include "forward/dense/attention.h"

namespace moestro {

// Positions that the rows of a step attend to, where an indexer chooses them (PoolRule). A row that
// does not choose attends to all positions, in its cells as they lie; one that does attends to
// single positions, in order. Each row has IndexerSpec::n_choices() choices. Layers without an
// indexer of their own use the choice of the layer before them.

class ChosenPositions {
 public:
  // For steps of up to `rows` rows of sequences of up to n_ctx positions, of which an indexer
  // chooses. kNoMemory.
  static Result<std::unique_ptr<ChosenPositions>> Create(uint32_t rows, const IndexerSpec& indexer,
                                                         uint32_t n_ctx);
  static uint64_t BytesFor(uint32_t rows, const IndexerSpec& indexer, uint32_t n_ctx);

  // Rows [first, first + visible.size()) of a step choose anew.
  void Begin(uint32_t first, std::span<const RowCells> visible);
  bool is_chosen(const RowCells& row) const { return width_ > 0 && rule_.Chooses(row.n_positions); }
  bool may_choose() const { return width_ > 0; }  // false: no sequence is long enough
  // The cells that a row attends to by one of its choices, a run each. REQUIRES:
  // is_chosen(visible).
  std::span<CellRun> runs(uint32_t row, uint32_t choice, const RowCells& visible) const {
    return {first_run() + (size_t{row} * n_choices_ + choice) * width_,
            rule_.Attended(visible.n_positions)};
  }
  // [row][choice]
  std::span<const RowCells> rows(uint32_t first, size_t count) const {
    return std::span(rows_).subspan(size_t{first} * n_choices_, count * n_choices_);
  }
  // Reports NaN scores: the chosen positions are meaningless.
  void SayDamaged() { is_damaged_.store(true, std::memory_order_relaxed); }
  bool TakeDamage() { return is_damaged_.exchange(false, std::memory_order_relaxed); }

  // The choice of the first rows, kept while other rows use their places.
  struct SavedChoice {
    std::vector<CellRun> runs;
    std::vector<RowCells> rows;
  };
  SavedChoice Take(size_t count) const;
  void Give(const SavedChoice& kept);

 private:
  ChosenPositions(uint32_t rows, const IndexerSpec& indexer, uint32_t width)
      : rule_(indexer.rule()),
        n_choices_(indexer.n_choices()),
        width_(width),
        rows_(size_t{rows} * n_choices_) {}
  static uint32_t WidthFor(const IndexerSpec& indexer, uint32_t n_ctx) {
    return indexer.rule().Chooses(n_ctx) ? indexer.rule().MostAttended() : 0;
  }
  CellRun* first_run() const { return reinterpret_cast<CellRun*>(runs_.data()); }

  PoolRule rule_;
  uint32_t n_choices_;
  uint32_t width_;   // runs of a choice, at most
  HostMemory runs_;  // [row][choice][width_]
  std::vector<RowCells> rows_;
  std::atomic<bool> is_damaged_{false};
};

// Attention on a device: one fused product (ggml's flash attention) of all rows with all cells that
// a row may attend to. A mask limits each row to the cells of its own sequence up to its own
// position. With several sequences, every row also reads the other sequences' cells; with one
// sequence there is no extra cost.
//
// Keys and values are read as they are stored, sums are F32 if the device supports them.
//
// Thread rule: the engine thread.

class MaskedAttention {
 public:
  // Cells are visited in steps of this many, because kernels are then fastest. A cache has a
  // multiple of kCells cells.
  static constexpr uint32_t kCells = 256;

  // Room for `rows` rows over `n_cells` cells. kNoMemory.
  static Result<MaskedAttention> Allocate(ggml_backend_t backend, const AttentionShape& shape,
                                          uint32_t rows, uint32_t n_cells);
  static uint64_t BytesFor(uint32_t rows, uint32_t n_cells);

  // Sets the rows of the following nodes, and adds their mask to a border that must be crossed
  // first. The mask lives until the next call.
  void SetRows(std::span<const RowCells> rows, Border& border);
  // Cells from the first on that some row may attend to, rounded up to kCells.
  uint32_t visited() const { return n_visited_; }
  // As SetRows() with rows that attend to all cells, but sends no data: for sizes.
  void Assume(uint32_t rows);

  struct Layer {
    ggml_tensor* k = nullptr;      // [n_head_kv * dim_k, cells]
    ggml_tensor* v = nullptr;      // [n_head_kv * dim_v, cells]; null: values are in keys
    ggml_tensor* sinks = nullptr;  // F32 [n_head], on the device; null: no sinks
  };
  // q F32 [dim_k, n_head, rows] -> [n_head * dim_v, rows]. REQUIRES: the graph writes the rows'
  // cells before this node.
  ggml_tensor* Node(ggml_context* ctx, ggml_tensor* q, const Layer& layer, float scale) const;

 private:
  AttentionShape shape_;
  uint32_t n_cells_ = 0;  // cells of the cache
  uint32_t n_rows_ = 0;
  uint32_t n_visited_ = 0;
  BackendBuffer buffer_;  // the mask, F16 [rows][visited cells]
  std::vector<ggml_fp16_t> mask_;
};

}  // namespace moestro
