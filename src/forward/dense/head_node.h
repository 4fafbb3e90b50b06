// SPDX-License-Identifier: MIT
// The work on the heads of queries, keys and values between their products and attention, as one
// node on the CPU: norms of heads, turning by the position, and storing keys and values in their
// cells. The parts of the node are too short for a barrier after each.
//
// Cosines and sines are computed once a step for all equal layers, by ggml's rope of pairs (1, 0).
// A head's result depends on its own values and position alone, to the bit.
#pragma once

#include <ggml.h>

#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"
#include "compute/backend_buffer.h"
#include "compute/cpu_device.h"
#include "compute/row_kernel.h"
#include "core/kv_cells.h"
#include "core/model_spec.h"

namespace moestro {

class HeadNode {
 public:
  // For up to `rows` rows. rope_factors: F32 [n_dims / 2] or null. Null if a head is no whole
  // number of the cells' blocks, or ggml has no function that stores values of the type. kNoMemory.
  static Result<std::unique_ptr<HeadNode>> Create(CpuDevice& cpu, const AttentionSpec& spec,
                                                  KvType kv_type, const RowNorm& norm,
                                                  ggml_tensor* rope_factors, uint32_t rows);
  uint64_t bytes() const { return turns_.size() + positions_.size(); }

  // Sets the positions of a step's rows.
  Status SetPositions(std::span<const int32_t> positions);

  struct Inputs {
    ggml_tensor* q = nullptr;        // F32 [head_dim_k, n_head, rows]
    ggml_tensor* k = nullptr;        // F32 [head_dim_k, n_head_kv, rows]
    ggml_tensor* v = nullptr;        // F32 [n_embd_v, rows]
    ggml_tensor* q_norm = nullptr;   // F32 [head_dim_k]; null: heads have no norms
    ggml_tensor* k_norm = nullptr;   // F32 [head_dim_k]; null: heads have no norms
    ggml_tensor* k_cache = nullptr;  // [n_embd_k, cells]
    ggml_tensor* v_cache = nullptr;  // [n_embd_v, cells]
    ggml_tensor* cells = nullptr;    // I64 [rows]
    uint32_t first = 0;              // number of the first row in its step
  };
  // Adds the node: -> queries F32 [head_dim_k, n_head, rows]. The node also stores keys and values
  // in their cells. The graph must run the node before reading the cells.
  ggml_tensor* Node(ggml_context* ctx, const Inputs& in) const;

 private:
  HeadNode(CpuDevice& cpu, const AttentionSpec& spec, KvType kv_type, const RowNorm& norm,
           ggml_tensor* rope_factors);
  ggml_tensor* TurnsOf(ggml_context* ctx, uint32_t first, int64_t rows) const;
  void Work(ggml_tensor* result, int thread, int n_threads) const;
  void WorkOnQuery(ggml_tensor* result, int64_t row, int64_t head) const;
  void WorkOnKey(const ggml_tensor* result, int64_t row, int64_t head) const;
  void NormAndTurn(const float* from, const ggml_tensor* weight, const float* turns,
                   float* to) const;

  AttentionSpec spec_;
  KvType kv_type_;
  RowNorm norm_;
  ggml_from_float_t to_cell_;
  RowKernel::Turn turn_ = nullptr;  // null: heads are not turned
  ggml_tensor* rope_factors_;
  BackendBuffer turns_;      // F32 [rows][n_dims]: cosines and sines as RowKernel::Turn reads them
  BackendBuffer positions_;  // I32 [rows]
  GraphArena arena_;
};

}  // namespace moestro
