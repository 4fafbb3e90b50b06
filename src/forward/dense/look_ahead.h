// SPDX-License-Identifier: MIT
// All layers' routers as one matrix, so that the next layers' logits on this layer's input are one
// product. The matrix is a copy in 8 bits: this is enough for predictions, and the product is bound
// by memory bandwidth (in F32 it took 4 to 8 % of a token's computation for one layer ahead,
// Qwen3-30B-A3B's shape). Biases of routers are left out.
//
// Thread rule: the engine thread.
#pragma once

#include <ggml-backend.h>
#include <ggml-cpp.h>
#include <ggml.h>

#include <cstdint>

#include "base/result.h"
#include "core/model_spec.h"
#include "device/backend_buffer.h"
#include "forward/dense/tensors.h"

namespace moestro {

class LookAheadRouters {
 public:
  static uint64_t BytesFor(const ModelSpec& spec);
  // On the device of `backend`; null: in memory. kNoMemory. REQUIRES: routers are [n_embd,
  // n_expert] in every layer.
  static Result<LookAheadRouters> Allocate(const ModelSpec& spec, ggml_backend_t backend = nullptr);
  // Copies the routers of `tensors`. REQUIRES: they are loaded. kDevice.
  Status Fill(const ModelTensors& tensors);

  // The routers of `layers` layers with experts from the `first` such layer on:
  // [n_embd, layers * n_expert].
  ggml_tensor* Stack(ggml_context* ctx, uint32_t first, uint32_t layers) const;

 private:
  BackendBuffer buffer_;
  ggml_context_ptr context_;
  ggml_tensor* all_ = nullptr;  // [n_embd, layers * n_expert]
  int64_t n_embd_ = 0;
  int64_t n_expert_ = 0;
};

}  // namespace moestro
