// SPDX-License-Identifier: MIT
// Rows of one sequence that follow each other form a tile. For each key-value head a tile has the
// queries of the heads that share this head, so that a block of keys is converted once for many
// queries. Where tiles are too few for the threads, each span of positions is a task, and the
// thread that ends a row's last span merges the spans, in order (forward/dense/step_rows.h).
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
#include "compute/cpu_device.h"
#include "compute/host_memory.h"
#include "core/kv_cells.h"
#include "core/model_spec.h"
#include "forward/dense/step_rows.h"

namespace moestro {

// Numbers that attention adds to scores by the distance of key and query, one row of numbers for
// each head. Pure. Source: C. Raffel et al., "Exploring the Limits of Transfer Learning", 2020,
// section 2.1.

// The range of a distance, key's position less query's: 0 to n_buckets - 1. Each near distance has
// a range of its own; far distances share ranges by their logarithm. Rounding is as in float32.
uint32_t BucketOf(const RelativeBias& bias, int64_t distance);

class RelativeScores {
 public:
  // of: F32 [range][head]. most: distances are -most to most.
  RelativeScores(const RelativeBias& bias, const float* of, uint32_t n_head, uint32_t most);

  // Numbers times log2(e) for AttentionKernel::kKeys keys, from `distance` on. Keys of a block that
  // no row attends to may be at other distances. REQUIRES: |distance| <= most + kKeys.
  const float* From(uint32_t head, int64_t distance) const;
  static uint64_t BytesFor(uint32_t n_head, uint32_t most);

 private:
  static size_t WidthFor(uint32_t most);
  size_t width_;
  int64_t zero_;               // index of distance 0 in a row
  std::vector<float> scores_;  // [head][distance]
};

struct AttentionShape {
  static AttentionShape Of(const AttentionSpec& spec, KvType kv_type);
  static AttentionShape Of(const LatentAttentionSpec& spec, KvType kv_type);

  uint32_t n_head = 0;
  uint32_t n_head_kv = 0;  // divides n_head
  uint32_t dim_k = 0;      // values of a head's key
  uint32_t dim_v = 0;
  uint32_t cell_k = 0;  // values of a cell's keys, an indexer's behind those of heads; 0: no more
  uint32_t n_choices = 1;  // divides n_head_kv: so many parts of a row's heads have their own cells
  uint32_t window = 0;     // a row attends to this many of its last positions; 0: all
  KvType kv_type = KvType::kF16;
  bool values_in_keys = false;  // a value is the first dim_v values of its key
};

class TiledAttention {
 public:
  // The node reads `stop` before each block of keys. After a stop the node's results are undefined.
  // null: no stop is requested. `time`: the node's time; may be null. kNoMemory.
  static Result<std::unique_ptr<TiledAttention>> Create(const AttentionShape& shape,
                                                        uint32_t threads,
                                                        const AttentionKernel& kernel,
                                                        StopSignal* stop = nullptr,
                                                        TeamTime* time = nullptr);
  // Bytes beside those of threads; one thread does not use them.
  uint64_t bytes() const { return split_bytes_; }
  uint64_t thread_bytes() const { return thread_bytes_; }  // bytes of each thread

  struct Layer {
    // Cells as ggml_set_rows() writes values of the shape's type.
    const std::byte* k = nullptr;  // [cell][cell_k], keys of heads first
    const std::byte* v = nullptr;  // [cell][n_head_kv * dim_v]; null: values are in keys
    float scale = 1.0F;            // factor of scores
    uint32_t window = 0;           // a row attends to this many of its last positions; 0: all
    // [n_head]: a score that is part of the softmax and has no value; empty: no such scores.
    std::span<const float> sinks;
    // Adds numbers to scores by distance; null: nothing is added.
    const RelativeScores* relative = nullptr;
  };
  // Adds the node: q F32 [dim_k, n_head, rows] -> [n_head * dim_v, rows]. A graph holds one such
  // node. REQUIRES: the graph writes the cells before this node.
  ggml_tensor* Node(ggml_context* ctx, ggml_tensor* q);
  // Sets the cells and the rows of the next run of a graph with the node. `rows` [row][choice] must
  // live until the node has run. REQUIRES: as many rows as the node's.
  void Bind(const Layer& layer, std::span<const RowCells> rows);

 private:
  using Tile = AttentionTasks::Tile;
  using Task = AttentionTasks::Task;
  // The running softmax of queries over the positions visited so far.
  struct Running {
    float* largest = nullptr;  // [queries]
    float* weights = nullptr;  // [queries][kMaxLanes]
    float* sums = nullptr;     // [queries][padded dim_v]
  };
  // The buffers of one thread.
  struct Scratch {
    float* queries = nullptr;              // [queries][dim_k]
    float* scores = nullptr;               // [queries][kKeys]
    Running span;                          // softmax of one span
    Running whole;                         // softmax of the spans before that one
    float* keys = nullptr;                 // [kKeys][key_stride]
    float* turned = nullptr;               // `keys` in the layout of the kernel
    float* values = nullptr;               // [kKeys][value_stride]
    KeyRange* ranges = nullptr;            // [queries]
    std::vector<const float*> added = {};  // [queries], where scores depend on distances
    std::vector<AttentionKernel::Piece> ahead;
  };

  TiledAttention(const AttentionShape& shape, uint32_t threads, const AttentionKernel& kernel,
                 StopSignal* stop, TeamTime* time);
  Status Allocate(uint32_t threads);
  bool ShallStop() const { return stop_ != nullptr && stop_->is_requested(); }
  void Work(ggml_tensor* result, Scratch& s);
  void AttendAll(const Task& task, float* out, Scratch& s) const;
  void AttendSplit(const Task& task, float* out, Scratch& s);
  void Begin(const Task& task, const float* q, Scratch& s) const;
  void BeginWhole(const Task& task, const Running& whole) const;
  void AttendSpan(const Task& task, uint32_t begin, uint32_t end, const Running& to,
                  Scratch& s) const;
  void LoadBlock(const Tile& tile, uint32_t kv_head, uint32_t position, uint32_t end,
                 Scratch& s) const;
  void FindAdded(const Task& task, uint32_t position, Scratch& s) const;
  void AttendBlock(const Task& task, uint32_t position, const Running& to, Scratch& s) const;
  void Merge(const Task& task, uint32_t begin, uint32_t end, const Running& span,
             const Running& whole) const;
  void End(const Task& task, const Running& whole, float* out) const;
  Running SplitPart(uint32_t first_query) const;
  const Tile& tile_of(const Task& task) const { return tasks_.tiles()[task.tile]; }
  const RowCells& CellsOf(const Tile& tile, uint32_t row) const {
    return tasks_.CellsOf(rows_, tile, row);
  }

  AttentionShape shape_;
  AttentionKernel kernel_;
  StopSignal* stop_;
  TeamTime* time_;
  AttentionTasks tasks_;
  uint32_t sums_width_ = 0;  // dim_v, padded
  size_t key_stride_ = 0;
  size_t value_stride_ = 0;
  uint64_t thread_bytes_ = 0;
  HostMemory memory_;
  std::vector<Scratch> scratch_;  // [thread]
  uint64_t split_bytes_ = 0;
  HostMemory split_memory_;
  Running split_;  // softmaxes of all split tasks' queries
  // Members that Bind() sets.
  Layer layer_;
  std::span<const RowCells> rows_;
  std::atomic<uint32_t> next_task_{0};
  // [whole]: tasks that have not ended. Each end releases its span, and the last one acquires the
  // spans of all (tests/memory_order/attention_split.litmus).
  std::vector<std::atomic<uint32_t>> left_;
};

}  // namespace moestro
