// SPDX-License-Identifier: MIT
// All layers' routers as one matrix, so that the next layers' logits on this layer's input are one
// product. A copy in 8 bits: predictions need no more, and the product is bound by memory bandwidth
// (in F32 it took 4 to 8 % of a token's computation for one layer ahead, Qwen3-30B-A3B's shape).
// Biases of routers are left out.
//
// Thread rule: the engine thread.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "core/model_spec.h"
#include "device/graph_arena.h"
#include "forward/dense/tensors.h"

struct ggml_context;

namespace moestro {

class LookAheadRouters {
 public:
  static uint64_t BytesFor(const ModelSpec& spec);
  // kNoMemory. REQUIRES: routers are [n_embd, n_expert] in every layer.
  static Result<LookAheadRouters> Allocate(const ModelSpec& spec);
  // Copies what `tensors` hold; once they are loaded.
  void Fill(const ModelTensors& tensors);

  // The routers of `layers` layers with experts from the `first` such layer on:
  // [n_embd, layers * n_expert].
  ggml_tensor* Stack(ggml_context* ctx, uint32_t first, uint32_t layers) const;

 private:
  HostBuffer buffer_;
  int64_t n_embd_ = 0;
  int64_t n_expert_ = 0;
};

}  // namespace moestro
