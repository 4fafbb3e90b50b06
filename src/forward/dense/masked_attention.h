// SPDX-License-Identifier: MIT
// Attention on a device: one fused product (ggml's flash attention) of all rows with all cells that
// a row may attend to. A mask limits each row to the cells of its own sequence up to its own
// position. With several sequences, every row also reads the other sequences' cells; with one
// sequence there is no extra cost.
//
// Keys and values are read as they are stored, sums are F32 if the device supports them.
//
// Thread rule: the engine thread.
#pragma once

#include <ggml-backend.h>
#include <ggml.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "device/backend_buffer.h"
#include "forward/dense/attention.h"

namespace moestro {

class MaskedAttention {
 public:
  // Cells are visited in steps of this many, because kernels are then fastest. A cache has a
  // multiple of kCells cells.
  static constexpr uint32_t kCells = 256;

  // Room for `rows` rows over `n_cells` cells. kNoMemory.
  static Result<MaskedAttention> Allocate(ggml_backend_t backend, const AttentionShape& shape,
                                          uint32_t rows, uint32_t n_cells);
  static uint64_t BytesFor(uint32_t rows, uint32_t n_cells);

  // Sets the rows of the following nodes. kDevice.
  Status SetRows(std::span<const RowCells> rows);
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
