// SPDX-License-Identifier: MIT
// Keys of pools of positions (PooledAttentionSpec), as a node of a graph: means of what positions
// give, weighed value by value by a softmax of gates.
//
// Thread rule: Node(), Bind() and the graph on the engine thread; the node itself runs on all
// threads of the team.
#pragma once

#include <ggml.h>

#include <atomic>
#include <cstdint>
#include <span>

#include "base/work_limit.h"
#include "forward/dense/step_rows.h"
#include "memory/layer_values.h"

namespace moestro {

// A sequence's state has the softmax's sums over the positions of the pool that is not full, for
// each value: so a pool needs no memory of its positions, and each row adds to the sums once. A
// row's result has the same bits however its text was cut into steps.
class PoolSums {
 public:
  struct Shape {
    uint32_t n_pool = 0;  // positions
    // 2: a position also counts in the pool behind its own, with values and gates of their own,
    // which come first in a row.
    uint32_t n_shares = 1;
    uint32_t n = 0;            // values of a key
    uint32_t first_value = 0;  // of these sums in the layer's state
    bool operator==(const Shape&) const = default;
  };
  // stop: read before each piece of work; null: no stop is requested.
  PoolSums(const Shape& shape, StopSignal* stop) : shape_(shape), stop_(stop) {}

  // Adds the node: values and gates [n_shares * n, rows], bias [n_shares * n, n_pool], added to
  // gates -> the key of the pool that each row ends, [n, rows]; zeros for other rows. A graph holds
  // one such node.
  ggml_tensor* Node(ggml_context* ctx, ggml_tensor* values, ggml_tensor* gates, ggml_tensor* bias);
  // Sets the rows of the next run. visible[row].n_positions: the row's position plus 1. Both spans
  // live until the node has run.
  void Bind(uint32_t layer, std::span<const RowCells> visible, std::span<const RowState> rows,
            const StateStore& states);
  // Whether the row's position is the last one of a pool.
  bool ends_pool(const RowCells& row) const { return row.n_positions % shape_.n_pool == 0; }

 private:
  struct Sums;
  void Work(ggml_tensor* result);
  void AddRun(const StateRun& run, uint32_t first, uint32_t n, ggml_tensor* result) const;

  Shape shape_;
  StopSignal* stop_;
  // Members that Bind() sets.
  uint32_t layer_ = 0;
  std::span<const RowCells> visible_;
  const StateStore* states_ = nullptr;
  StateRows rows_;
  std::atomic<uint32_t> next_task_{0};
};

}  // namespace moestro
