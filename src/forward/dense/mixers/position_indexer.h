// SPDX-License-Identifier: MIT
// Chooses the positions that rows attend to, as a node of a graph.
//
// Thread rule: Node(), Bind() and the graph on the engine thread; the node itself runs on all
// threads of the team.
#pragma once

#include <ggml.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/work_limit.h"
#include "compute/attention_kernel.h"
#include "compute/expert_kernel.h"
#include "compute/host_memory.h"
#include "core/kv_cells.h"
#include "core/model_spec.h"
#include "core/pool_rule.h"
#include "forward/dense/attended_cells.h"

namespace moestro {

// Chooses the pools with the largest scores, with the positions of the tail (PoolRule). The score
// of a pool's key, which lies in the cell of its last position, is
//   sum over heads of weight_h * max(query_h . key, 0);
// where a head chooses on its own, a pool's score is the largest of its positions' query_h . key
// (PoolScore). A pool may be one position. A row's choice depends on its own queries and cells
// alone. Of equal scores the earlier pool is chosen. Scores that are no numbers are reported to
// ChosenPositions. Source: DeepSeek-AI, "DeepSeek-V3.2", 2025, section 2.1.
//
// Threads share the keys of a row where there are no more rows than threads, as in decode; else a
// thread takes whole rows. A key's products are the same, so no bit depends on the threads.
class PositionIndexer {
 public:
  // The node reads `stop` before each block of keys. After a stop the node's results are undefined.
  // null: no stop is requested. kNoMemory.
  static Result<std::unique_ptr<PositionIndexer>> Create(const IndexerSpec& spec, KvType kv_type,
                                                         uint32_t n_ctx, uint32_t threads,
                                                         StopSignal* stop);
  uint64_t thread_bytes() const { return thread_bytes_; }  // bytes of each thread

  struct Rows {
    const std::byte* keys = nullptr;    // of the first cell, of the cache's type
    uint64_t cell_bytes = 0;            // from a cell's key to the next one's
    uint32_t first = 0;                 // number of the first row in its step
    std::span<const RowCells> visible;  // lives until the node has run
    // Lives until the node has run. REQUIRES: Begin() has been called for the rows.
    ChosenPositions* chosen = nullptr;
  };
  // Adds the node: queries F32 [head_dim, n_head, rows], weights F32 [n_head, rows], or null for
  // equal ones -> the chosen runs of rows that have to choose. A graph holds one such node.
  // REQUIRES: the graph writes the cells before this node.
  ggml_tensor* Node(ggml_context* ctx, ggml_tensor* queries, ggml_tensor* weights);
  // Sets the rows of the next run of a graph with the node.
  void Bind(const Rows& rows);

 private:
  // The buffers of one thread.
  struct Scratch {
    float* scores = nullptr;           // [choice][pool]
    uint32_t* order = nullptr;         // [pool]
    float* key = nullptr;              // [head_dim]
    float* products = nullptr;         // [kKeys][n_head]
    std::byte* activations = nullptr;  // [kKeys][activation_bytes]
  };
  // A row whose keys threads share; its scores are those of the scratch of the same number.
  struct SharedRow {
    uint32_t row = 0;
    uint32_t end_task = 0;          // number behind the row's last piece
    std::atomic<uint32_t> left{0};  // pieces without scores
  };
  class CellsInOrder;
  static constexpr uint32_t kKeys = AttentionKernel::kKeys;

  PositionIndexer(const IndexerSpec& spec, KvType kv_type, StopSignal* stop)
      : spec_(spec), rule_(spec.rule()), kv_type_(kv_type), stop_(stop) {}
  Status Allocate(uint32_t n_ctx, uint32_t threads);
  bool ShallStop() const { return stop_ != nullptr && stop_->is_requested(); }
  bool scores_positions() const { return spec_.score == PoolScore::kBestPosition; }
  uint32_t KeysOf(const RowCells& row) const;
  void TakeRows(const ggml_tensor* result, const Scratch& s);
  void TakePieces(const ggml_tensor* result, const Scratch& s);
  // Keys [begin, end) of a row.
  struct Piece {
    uint32_t row = 0;
    uint32_t begin = 0;
    uint32_t end = 0;
  };
  void Score(const ggml_tensor* result, const Piece& piece, CellsInOrder& cells, const Scratch& s,
             float* scores) const;
  float ScoreOfPool(const float* products, const float* weights) const;
  bool ScorePosition(uint32_t position, const float* products, float* scores) const;
  void Choose(uint32_t row, const float* scores, uint32_t* order) const;

  IndexerSpec spec_;
  PoolRule rule_;
  KvType kv_type_;
  StopSignal* stop_;
  AttentionKernel kernel_ = AttentionKernel::ForThisMachine();
  ExpertKernel product_;  // the kernel for F32
  uint32_t most_pools_ = 0;
  uint32_t piece_keys_ = 0;  // whole blocks of keys, and whole pools
  uint64_t thread_bytes_ = 0;
  HostMemory memory_;
  std::vector<Scratch> scratch_;  // [thread]
  // Members that Bind() sets.
  Rows rows_;
  std::vector<SharedRow> shared_;  // [thread], of which n_shared_ are in use
  uint32_t n_shared_ = 0;          // 0: threads take whole rows
  std::atomic<uint32_t> next_task_{0};
};

}  // namespace moestro
