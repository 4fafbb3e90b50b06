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
#include "compute/device.h"
#include "compute/graph_arena.h"
#include "core/ids.h"
#include "core/model_spec.h"
#include "graph/arch.h"
#include "graph/look_ahead.h"
#include "graph/tensors.h"

namespace moestro {

struct StepLimits {
  uint32_t chunk = 1;        // tokens at once
  uint32_t n_ctx = 1;        // cells of the KV cache
  uint32_t logits_rows = 1;  // rows of logits at once
  uint32_t look_ahead = 0;   // layers whose routers are evaluated ahead of time
};

// What crosses the border between graphs, for up to `chunk` tokens; rows are tokens.
class StepBuffers {
 public:
  static Result<StepBuffers> Allocate(const ModelSpec& spec, const StepLimits& limits);
  static uint64_t BytesFor(const ModelSpec& spec, const StepLimits& limits);

  float* hidden() const { return At<float>(kHidden); }      // [tokens][n_embd] enters a layer
  float* residual() const { return At<float>(kResidual); }  // [tokens][n_embd] after attention
  float* shared() const { return At<float>(kShared); }      // [tokens][n_embd] of the shared expert
  float* ffn_in() const { return At<float>(kFfnIn); }       // [tokens][n_embd] what experts see
  float* router() const { return At<float>(kRouter); }      // [tokens][n_expert] logits
  // [look_ahead][tokens][n_expert] logits of the following layers' routers on this layer's input
  float* ahead() const { return At<float>(kAhead); }
  float* logits() const { return At<float>(kLogits); }  // [logits_rows][n_vocab]
  int32_t* positions() const { return At<int32_t>(kPositions); }
  int64_t* cells() const { return At<int64_t>(kCells); }
  uint16_t* mask() const { return At<uint16_t>(kMask); }  // F16 [tokens][n_kv]

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
    kMask,
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

// Keys and values of every layer, F16, for one sequence. Zeroed: masked cells must be finite.
class KvCache {
 public:
  static Result<KvCache> Allocate(const ModelSpec& spec, uint32_t n_ctx);
  static uint64_t BytesFor(const ModelSpec& spec, uint32_t n_ctx);

 private:
  friend class LayerGraph;
  HostBuffer buffer_;
  uint64_t k_bytes_ = 0;  // of one layer
  uint64_t layer_stride_ = 0;
};

// A batch of consecutive tokens of the sequence.
struct Batch {
  uint32_t first = 0;  // position of the first token
  uint32_t n_tokens = 0;
};

class LayerGraph {
 public:
  // Everything is borrowed and must outlive this. n_ctx: cells of the KV cache.
  LayerGraph(CpuDevice& device, const ModelSpec& spec, const ModelTensors& tensors,
             StepBuffers& buffers, KvCache& kv, uint32_t n_ctx);

  // For Attend() with look_ahead > 0; borrowed.
  void SetLookAhead(const LookAheadRouters& routers) { look_ahead_ = &routers; }

  // Sizes the intermediate buffer for `chunk` tokens over a full context.
  Status Reserve(uint32_t chunk, uint32_t logits_rows);
  uint64_t buffer_bytes() const { return arena_.buffer_bytes(); }

  // Token rows of the embedding -> hidden.
  void Embed(std::span<const Token> tokens);
  // Positions, cache cells and causal mask of a batch; once per batch, before the first layer.
  void SetBatch(const Batch& batch);
  // hidden -> residual, shared (where the model has a shared expert), ffn_in, router logits; writes
  // the KV cache. Also the router logits of the next `look_ahead` layers that have one, or of as
  // many as there are, on this layer's input. A layer without experts: hidden -> hidden, nothing
  // else. REQUIRES: look_ahead is within the buffers' limit, and
  // SetLookAhead() was called if it is not 0.
  Status Attend(LayerId layer, const Batch& batch, uint32_t look_ahead = 0);
  // Rows [first_row, first_row + n_rows) of hidden -> logits. REQUIRES: n_rows <= logits_rows.
  Status Head(uint32_t first_row, uint32_t n_rows);

 private:
  ggml_tensor* Input(ggml_type type, std::array<int64_t, 2> ne, StepBuffers::Region region,
                     uint64_t skip_bytes = 0);
  void Output(ggml_tensor* result, StepBuffers::Region region, uint64_t skip_bytes = 0);
  void BuildLayer(LayerId layer, const Batch& batch, uint32_t look_ahead);
  void BuildLookAhead(LayerId layer, ggml_tensor* ffn_in, uint32_t look_ahead);
  void BuildHead(uint32_t first_row, uint32_t n_rows);
  int64_t CellsOf(const Batch& batch) const;

  const ModelSpec* spec_;
  const ModelTensors* tensors_;
  StepBuffers* buffers_;
  KvCache* kv_;
  ArchChoices arch_;
  ggml_tensor* rope_factors_ = nullptr;
  const LookAheadRouters* look_ahead_ = nullptr;
  uint32_t n_ctx_;
  GraphArena arena_;
};

}  // namespace moestro
