// SPDX-License-Identifier: MIT
// Keys of pools of positions, which an indexer chooses (IndexerSpec), as a node of a graph.
//
// Thread rule: Node(), Bind() and the graph on the engine thread; the node itself runs on all
// threads of the team.
#pragma once

#include <ggml.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"
#include "compute/attention_kernel.h"
#include "compute/host_memory.h"
#include "core/kv_cells.h"
#include "core/model_spec.h"
#include "forward/dense/step_rows.h"

namespace moestro {

// A cell has a position's key and, behind it, the position's gates. The last position of a pool
// replaces its key by that of the pool, key(d) = sum over places j of softmax_j(gate_j(d) +
// bias_j(d)) * key_j(d), so that keys of full pools lie in the cells of their last positions. A
// pool's earlier positions keep theirs: a sequence may go back into the pool.
class PooledKeys {
 public:
  // kNoMemory.
  static Result<std::unique_ptr<PooledKeys>> Create(const IndexerSpec& spec, KvType kv_type,
                                                    uint32_t threads);
  uint64_t thread_bytes() const { return thread_bytes_; }  // bytes of each thread

  struct Rows {
    std::byte* cells = nullptr;         // [cell][n_remembered], of the cache's type
    std::span<const RowCells> visible;  // lives until the node has run
  };
  // Adds the node, whose result means nothing. bias F32 [head_dim, n_pool]. A graph holds one such
  // node. REQUIRES: the graph writes the rows' cells before this node.
  ggml_tensor* Node(ggml_context* ctx, ggml_tensor* bias);
  // Sets the rows of the next run of a graph with the node.
  void Bind(const Rows& rows) { rows_ = rows; }

 private:
  PooledKeys(const IndexerSpec& spec, KvType kv_type) : spec_(spec), kv_type_(kv_type) {}
  void Pool(const RowCells& row, const float* bias, float* members) const;

  IndexerSpec spec_;
  KvType kv_type_;
  AttentionKernel kernel_ = AttentionKernel::ForThisMachine();
  uint64_t thread_bytes_ = 0;
  HostMemory memory_;  // [thread][n_pool][n_remembered], and a key behind
  Rows rows_;
};

}  // namespace moestro
