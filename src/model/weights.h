// SPDX-License-Identifier: MIT
// The tensors of a supported model under their roles: dense ones resident, experts by slice. All
// names, shapes and types have been checked, so nothing downstream can make ggml abort.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/extent.h"
#include "core/ids.h"
#include "core/model_spec.h"
#include "model/gguf_file.h"

namespace moestro {

// One kind of expert matrix of one layer: E slices of equal size, rows of n_in weights.
struct ExpertMatrix {
  ggml_type type = GGML_TYPE_F32;
  uint32_t n_in = 0;
  uint32_t n_out = 0;
  uint64_t slice_bytes = 0;    // one expert's matrix
  std::vector<Extent> slices;  // [n_expert]
};

struct LayerExperts {
  std::array<ExpertMatrix, kMatrices> matrices;  // indexed by Matrix
  const ExpertMatrix& operator[](Matrix m) const { return matrices[static_cast<size_t>(m)]; }
  uint64_t expert_bytes() const {  // gate + up + down of one expert
    return matrices[0].slice_bytes + matrices[1].slice_bytes + matrices[2].slice_bytes;
  }
};

// Dense tensors by role; nullptr where the architecture or file has none. Pointers lead into the
// GgufFile, which must outlive this.
struct LayerWeights {
  const TensorInfo* attn_norm = nullptr;    // F32 [n_embd]
  const TensorInfo* attn_norm_b = nullptr;  // F32 [n_embd], phimoe
  const TensorInfo* attn_q = nullptr;       // [n_embd, n_head * head_dim_k]
  const TensorInfo* attn_k = nullptr;       // [n_embd, n_embd_k]
  const TensorInfo* attn_v = nullptr;       // [n_embd, n_embd_v]
  const TensorInfo* attn_qkv = nullptr;     // fused form, instead of the three above
  const TensorInfo* attn_q_b = nullptr;     // F32 biases
  const TensorInfo* attn_k_b = nullptr;
  const TensorInfo* attn_v_b = nullptr;
  const TensorInfo* attn_qkv_b = nullptr;
  const TensorInfo* attn_out = nullptr;  // [n_head * head_dim_v, n_embd]
  const TensorInfo* attn_out_b = nullptr;
  const TensorInfo* attn_q_norm = nullptr;  // F32 [head_dim_k] qwen3moe, [n_head*head_dim_k] olmoe
  const TensorInfo* attn_k_norm = nullptr;
  const TensorInfo* ffn_norm = nullptr;  // F32 [n_embd]
  const TensorInfo* ffn_norm_b = nullptr;
  const TensorInfo* router = nullptr;         // ffn_gate_inp [n_embd, n_expert]
  const TensorInfo* shared_router = nullptr;  // ffn_gate_inp_shexp F32 [n_embd], qwen2moe
  const TensorInfo* shared_gate = nullptr;    // [n_embd, n_ff_shared]
  const TensorInfo* shared_up = nullptr;
  const TensorInfo* shared_down = nullptr;  // [n_ff_shared, n_embd]
  LayerExperts experts;
};

struct ModelWeights {
  const TensorInfo* token_embd = nullptr;  // [n_embd, n_vocab]
  const TensorInfo* output = nullptr;      // == token_embd when tied
  const TensorInfo* output_b = nullptr;    // F32 [n_vocab], phimoe
  const TensorInfo* output_norm = nullptr;
  const TensorInfo* output_norm_b = nullptr;
  const TensorInfo* rope_freqs = nullptr;         // llama: F32 [n_dims/2]
  const TensorInfo* rope_factors_long = nullptr;  // phimoe
  const TensorInfo* rope_factors_short = nullptr;
  std::vector<LayerWeights> layers;

  // Bytes of all dense tensors, each counted once.
  uint64_t dense_bytes() const;
  // Every dense tensor once.
  std::vector<const TensorInfo*> dense_tensors() const;
};

// Fails with kInvalidFile (missing tensor, wrong shape: both expected and actual) or kUnsupported
// (a type that ggml's CPU backend cannot multiply: lists those it can).
Result<ModelWeights> ReadWeights(const GgufFile& file, const ModelSpec& spec);

}  // namespace moestro
