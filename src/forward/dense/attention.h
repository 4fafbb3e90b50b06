// SPDX-License-Identifier: MIT
// Attention of rows that belong to different sequences: every row visits the cells of its own
// sequence, in order of position, and no others. A custom node on ggml's threads; a masked
// attention over all sequences' cells would read every sequence's keys for every row.
//
// A row's result depends on its own query and cells alone: not on the other rows of the batch, not
// on the number of threads, not on where its cells lie. Arithmetic: scores by ggml's F16 dot
// product, softmax on the fly, values summed in F16 over kGroup positions and groups in F32. Over
// one group that is, to the bit, what ggml's attention gives for fewer than 512 cells.
//
// Thread rule: Node() and the graph it is part of on the engine thread; the node itself runs on all
// threads of the team.
#pragma once

#include <ggml.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/cells.h"
#include "device/cpu_device.h"
#include "device/half_vector.h"

namespace moestro {

// Which cells a row attends to: the first n_positions of `runs`.
struct RowCells {
  std::span<const CellRun> runs;
  uint32_t n_positions = 0;
};

struct AttentionShape {
  uint32_t n_head = 0;
  uint32_t n_head_kv = 0;  // divides n_head
  uint32_t dim_k = 0;      // of a head
  uint32_t dim_v = 0;
};

class RowAttention {
 public:
  static constexpr uint32_t kGroup = 256;  // positions summed in F16

  RowAttention(const CpuTraits& traits, const AttentionShape& shape, uint32_t threads);

  // One layer's keys and values: F16 [cell][n_head_kv * dim], as ggml_set_rows() writes them.
  struct Cache {
    const Half* k = nullptr;
    const Half* v = nullptr;
  };
  // Adds the node: q F32 [dim_k, n_head, rows] -> [n_head * dim_v, rows]. The node computes what
  // the last call described, so one graph holds one of them; `rows` must live until it has run.
  // REQUIRES: the graph writes the cells before this node.
  ggml_tensor* Node(ggml_context* ctx, ggml_tensor* q, const Cache& cache, float scale,
                    std::span<const RowCells> rows);

 private:
  // Running softmax over a group of positions, and over the groups before it.
  struct Sum {
    float largest;
    float weight;
  };
  struct Scratch {
    std::vector<Half> query;
    std::vector<Half> group;   // values summed in this group
    std::vector<float> total;  // over the groups before
  };

  void Work(ggml_tensor* result, int thread, int n_threads);
  void Attend(const float* query, uint32_t head, const RowCells& row, float* out, Scratch& scratch);
  void VisitCell(const Half* k, const Half* v, Scratch& scratch, Sum& sum) const;
  void CloseGroup(Scratch& scratch, Sum& group, Sum& total) const;
  float Dot(const Half* a, const Half* b) const;

  AttentionShape shape_;
  ggml_vec_dot_t dot_ = nullptr;  // null: the plug-in hides it
  HalfVector half_;
  std::vector<Scratch> scratch_;  // [thread]
  Cache cache_;
  float scale_ = 1.0F;
  std::span<const RowCells> rows_;
};

}  // namespace moestro
