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
#include <memory>
#include <span>

#include "base/result.h"
#include "compute/backend_buffer.h"
#include "compute/weight_set.h"
#include "core/model_spec.h"

namespace moestro {

class LookAheadRouters {
 public:
  // Routers are [n_embd, n_expert] in every layer with experts.
  struct Shape {
    int64_t n_embd = 0;
    int64_t n_expert = 0;
    uint32_t layers = 0;  // layers with experts

    static Shape Of(const ModelSpec& spec) {
      return {.n_embd = spec.n_embd,
              .n_expert = spec.router.n_expert,
              .layers = spec.n_expert_layers()};
    }
  };
  static uint64_t BytesFor(const Shape& shape);
  // Memory on the device of `backend`; null: in memory, and `time` gets the time of our kernels.
  // kNoMemory.
  static Result<LookAheadRouters> Allocate(const Shape& shape, ggml_backend_t backend = nullptr,
                                           TeamTime* time = nullptr);
  // Copies the routers, [layers with experts]. `scales`: per router the factors of its input, F32
  // [n_embd], or null; empty: all are null. REQUIRES: routers and scales are loaded. kDevice.
  Status Fill(std::span<const ggml_tensor* const> routers,
              std::span<const ggml_tensor* const> scales = {});

  // The routers of `layers` layers with experts from the `first` such layer on:
  // [n_embd, layers * n_expert]; for MultiplyNode().
  ggml_tensor* Stack(ggml_context* ctx, uint32_t first, uint32_t layers) const;

 private:
  Shape shape_;
  BackendBuffer buffer_;
  ggml_context_ptr context_;
  ggml_tensor* all_ = nullptr;                  // [n_embd, layers * n_expert]
  std::unique_ptr<const ExpertKernel> kernel_;  // null on a device
  std::unique_ptr<RowProduct> product_;         // how `all_` is multiplied
};

}  // namespace moestro
