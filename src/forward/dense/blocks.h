// SPDX-License-Identifier: MIT
// The dense parts of a transformer layer as ggml nodes. Functions add nodes to a context and return
// the last one; nothing is computed here. Dimensions are written [fastest, ..., slowest].
#pragma once

#include <ggml.h>

#include <cstdint>
#include <functional>

#include "core/model_spec.h"
#include "forward/dense/tensors.h"

namespace moestro {

// x / rms(x) * weight (+ bias); x [n, tokens], weight and bias [n].
ggml_tensor* RmsNorm(ggml_context* ctx, ggml_tensor* x, ggml_tensor* weight, ggml_tensor* bias,
                     float eps);

// weight^T x (+ bias); weight [n_in, n_out], x [n_in, tokens] -> [n_out, tokens].
ggml_tensor* Linear(ggml_context* ctx, ggml_tensor* weight, ggml_tensor* x, ggml_tensor* bias);

// activation(gate, up), as device/activation.h joins them in routed experts on the CPU.
ggml_tensor* GatedProduct(ggml_context* ctx, Activation activation, ggml_tensor* gate,
                          ggml_tensor* up);

struct AttentionInputs {
  ggml_tensor* x = nullptr;             // F32 [n_embd, tokens]
  ggml_tensor* positions = nullptr;     // I32 [tokens]
  ggml_tensor* cells = nullptr;         // I64 [tokens]: rows of the KV cache to write
  ggml_tensor* k_cache = nullptr;       // F16 [n_embd_k, cells of the cache]
  ggml_tensor* v_cache = nullptr;       // F16 [n_embd_v, cells of the cache]
  ggml_tensor* rope_factors = nullptr;  // F32 [n_dims / 2] or null
  // Adds the node that attends to the cells: q [head_dim_k, n_head, tokens] and the scale of the
  // scores -> [n_head * head_dim_v, tokens].
  std::function<ggml_tensor*(ggml_tensor* q, float scale)> attend;
};

// Self-attention with its residual: x + attention(norm(x)), [n_embd, tokens].
ggml_tensor* Attention(ggml_context* ctx, ggml_cgraph* graph, const ModelSpec& spec,
                       const LayerTensors& w, const AttentionInputs& in);

// The expert that every token uses, weighted by its own sigmoid gate where it has one:
// [n_embd, tokens]. REQUIRES: w.shared_gate is set.
ggml_tensor* SharedExpert(ggml_context* ctx, Activation activation, const LayerTensors& w,
                          ggml_tensor* x);

// The feed-forward block of a layer without experts: [n_embd, tokens]. REQUIRES: w.dense_gate is
// set.
ggml_tensor* DenseFfn(ggml_context* ctx, Activation activation, const LayerTensors& w,
                      ggml_tensor* x);

}  // namespace moestro
