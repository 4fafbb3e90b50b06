// SPDX-License-Identifier: MIT
// The resident weights of a model as ggml tensors, by role; null where a model has none. Shapes as
// in model/weights.h.
#pragma once

#include <vector>

struct ggml_tensor;

namespace moestro {

struct LayerTensors {
  ggml_tensor* attn_norm = nullptr;
  ggml_tensor* attn_norm_b = nullptr;
  ggml_tensor* attn_q = nullptr;
  ggml_tensor* attn_k = nullptr;
  ggml_tensor* attn_v = nullptr;
  ggml_tensor* attn_qkv = nullptr;
  ggml_tensor* attn_q_b = nullptr;
  ggml_tensor* attn_k_b = nullptr;
  ggml_tensor* attn_v_b = nullptr;
  ggml_tensor* attn_qkv_b = nullptr;
  ggml_tensor* attn_out = nullptr;
  ggml_tensor* attn_out_b = nullptr;
  ggml_tensor* attn_q_norm = nullptr;
  ggml_tensor* attn_k_norm = nullptr;
  ggml_tensor* ffn_norm = nullptr;
  ggml_tensor* ffn_norm_b = nullptr;
  ggml_tensor* router = nullptr;
  ggml_tensor* shared_router = nullptr;
  ggml_tensor* shared_gate = nullptr;
  ggml_tensor* shared_up = nullptr;
  ggml_tensor* shared_down = nullptr;
};

struct ModelTensors {
  ggml_tensor* token_embd = nullptr;
  ggml_tensor* output = nullptr;
  ggml_tensor* output_b = nullptr;
  ggml_tensor* output_norm = nullptr;
  ggml_tensor* output_norm_b = nullptr;
  ggml_tensor* rope_freqs = nullptr;
  ggml_tensor* rope_factors_long = nullptr;
  ggml_tensor* rope_factors_short = nullptr;
  std::vector<LayerTensors> layers;
};

}  // namespace moestro
