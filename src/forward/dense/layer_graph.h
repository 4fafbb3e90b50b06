// SPDX-License-Identifier: MIT
// Runs the dense part of a model: everything but the routed experts. Results land in a StepBuffers
// so that they outlive the graph that made them.
//
// Thread rule: the engine thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "core/ids.h"
#include "core/model_spec.h"
#include "device/cpu_device.h"
#include "device/graph_arena.h"
#include "forward/dense/attention.h"
#include "forward/dense/kv_cache.h"
#include "forward/dense/look_ahead.h"
#include "forward/dense/tensors.h"

namespace moestro {

struct StepLimits {
  uint32_t chunk = 1;        // rows at once
  uint32_t logits_rows = 1;  // rows of logits at once
  uint32_t look_ahead = 0;   // layers whose routers are evaluated ahead of time
};

// What crosses the border between graphs, for up to `chunk` rows.
class StepBuffers {
 public:
  static Result<StepBuffers> Allocate(const ModelSpec& spec, const StepLimits& limits);
  static uint64_t BytesFor(const ModelSpec& spec, const StepLimits& limits);

  float* hidden() const { return At<float>(kHidden); }      // [rows][n_embd] enters a layer
  float* residual() const { return At<float>(kResidual); }  // [rows][n_embd] after attention
  float* shared() const { return At<float>(kShared); }      // [rows][n_embd] of the shared expert
  float* ffn_in() const { return At<float>(kFfnIn); }       // [rows][n_embd] what experts see
  float* router() const { return At<float>(kRouter); }      // [rows][n_expert] logits
  // [look_ahead][rows][n_expert] logits of the following layers' routers on this layer's input
  float* ahead() const { return At<float>(kAhead); }
  float* logits() const { return At<float>(kLogits); }  // [logits_rows][n_vocab]
  int32_t* positions() const { return At<int32_t>(kPositions); }
  int64_t* cells() const { return At<int64_t>(kCells); }  // rows of the KV cache to write

 private:
  friend class LayerGraph;
  enum Region : uint8_t {
    kHidden,
    kResidual,
    kShared,
    kFfnIn,
    kRouter,
    kAhead,
    kLogits,
    kPositions,
    kCells,
    kRegions
  };
  using Offsets = std::array<uint64_t, kRegions + 1>;
  static Offsets Layout(const ModelSpec& spec, const StepLimits& limits);
  template <class T>
  T* At(Region region) const {
    return reinterpret_cast<T*>(buffer_.data() + offsets_[region]);
  }

  HostBuffer buffer_;
  Offsets offsets_{};
};

// A row of a step, with the cells that its position and those before it have got.
struct StepRow {
  Token token = 0;
  uint32_t position = 0;
  uint32_t cell = 0;  // where its key and value go
  RowCells visible;   // positions 0 .. position of its sequence; the runs outlive the step
};

class LayerGraph {
 public:
  // Everything is borrowed and must outlive this. n_ctx: the longest sequence.
  LayerGraph(CpuDevice& device, const ModelSpec& spec, const ModelTensors& tensors,
             StepBuffers& buffers, KvCache& kv, uint32_t n_ctx);

  // For Attend() with look_ahead > 0; borrowed.
  void SetLookAhead(const LookAheadRouters& routers) { look_ahead_ = &routers; }

  // Sizes the intermediate buffer for `chunk` rows.
  Status Reserve(uint32_t chunk, uint32_t logits_rows);
  uint64_t buffer_bytes() const { return arena_.buffer_bytes(); }

  // The rows that the following calls are about: looks up their embeddings -> hidden.
  void SetRows(std::span<const StepRow> rows);
  // hidden -> residual, shared (where the model has a shared expert), ffn_in, router logits; writes
  // the KV cache. Also the router logits of the next `look_ahead` layers that have one, or of as
  // many as there are, on this layer's input. A layer without experts: hidden -> hidden, nothing
  // else. REQUIRES: look_ahead is within the buffers' limit, and
  // SetLookAhead() was called if it is not 0.
  Status Attend(LayerId layer, uint32_t look_ahead = 0);
  // Rows [first_row, first_row + n_rows) of hidden -> logits. REQUIRES: n_rows <= logits_rows.
  Status Head(uint32_t first_row, uint32_t n_rows);

 private:
  ggml_tensor* Input(ggml_type type, std::array<int64_t, 2> ne, StepBuffers::Region region,
                     uint64_t skip_bytes = 0);
  void Output(ggml_tensor* result, StepBuffers::Region region, uint64_t skip_bytes = 0);
  void BuildLayer(LayerId layer, uint32_t look_ahead);
  void BuildLookAhead(LayerId layer, ggml_tensor* ffn_in, uint32_t look_ahead);
  void BuildHead(uint32_t first_row, uint32_t n_rows);
  void Embed(std::span<const StepRow> rows);

  const ModelSpec* spec_;
  const ModelTensors* tensors_;
  StepBuffers* buffers_;
  KvCache* kv_;
  ggml_tensor* rope_factors_ = nullptr;
  const LookAheadRouters* look_ahead_ = nullptr;
  RowAttention attention_;
  std::vector<RowCells> visible_;  // of the rows
  GraphArena arena_;
};

}  // namespace moestro
