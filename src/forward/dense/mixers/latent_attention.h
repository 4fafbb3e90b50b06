// SPDX-License-Identifier: MIT
// Latent attention over the cells of a row's own sequence, and the indexer that chooses positions
// for it.
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
#include "forward/dense/attended_cells.h"
#include "forward/dense/attention.h"
#include "forward/dense/mixers/mixer.h"

namespace moestro {

// Chooses the positions that a row attends to: those with the largest
//   score(p) = sum over heads of weight_h * max(query_h . key(p), 0),
// or the pools of positions whose keys have the largest ones (pooled_keys.h), with the positions
// behind the last full pool. A row's choice depends on its own queries and cells alone. Of equal
// scores the earlier position or pool is chosen. Scores that are no numbers are reported to
// ChosenPositions. A custom node on ggml's threads. Source: DeepSeek-AI, "DeepSeek-V3.2", 2025,
// section 2.1.

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
  // equal ones -> the chosen
  // runs of rows that have to choose. A graph holds one such node. REQUIRES: the graph
  // writes the cells before this node.
  ggml_tensor* Node(ggml_context* ctx, ggml_tensor* queries, ggml_tensor* weights);
  // Sets the rows of the next run of a graph with the node.
  void Bind(const Rows& rows);

 private:
  // The buffers of one thread.
  struct Scratch {
    float* scores = nullptr;           // [position or pool]
    uint32_t* order = nullptr;         // [position or pool]
    uint32_t* cells = nullptr;         // [position]
    float* key = nullptr;              // [head_dim]
    float* products = nullptr;         // [kKeys][n_head]
    std::byte* activations = nullptr;  // [kKeys][activation_bytes]
  };
  static constexpr uint32_t kKeys = AttentionKernel::kKeys;

  PositionIndexer(const IndexerSpec& spec, KvType kv_type, StopSignal* stop)
      : spec_(spec), kv_type_(kv_type), stop_(stop) {}
  Status Allocate(uint32_t n_ctx, uint32_t threads);
  bool ShallStop() const { return stop_ != nullptr && stop_->is_requested(); }
  void Work(const ggml_tensor* result, const Scratch& s);
  bool Score(const ggml_tensor* result, uint32_t row, const Scratch& s) const;
  void Choose(uint32_t row, const Scratch& s) const;

  IndexerSpec spec_;
  KvType kv_type_;
  StopSignal* stop_;
  AttentionKernel kernel_ = AttentionKernel::ForThisMachine();
  ExpertKernel product_;  // the kernel for F32
  uint64_t thread_bytes_ = 0;
  HostMemory memory_;
  std::vector<Scratch> scratch_;  // [thread]
  // Members that Bind() sets.
  Rows rows_;
  std::atomic<uint32_t> next_row_{0};
};

// Latent attention over the cells of a row's own sequence: all heads share one key of a position,
// whose latent is the value (core/model_spec.h).

// Attention in tiles on the CPU, with a mask on a device. kNoMemory; kDevice, also for joined
// matrices, which are turned in memory.
Result<std::unique_ptr<Mixer>> MakeLatentAttentionMixer(const MixerParts& parts,
                                                        const LatentAttentionSpec& spec);

}  // namespace moestro
