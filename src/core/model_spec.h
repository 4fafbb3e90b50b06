// SPDX-License-Identifier: MIT
// What a model is, as plain numbers. model/read_spec.cc fills it from GGUF metadata and has checked
// every value: all counts are positive, products fit, heads divide evenly.
#pragma once

#include <cstdint>
#include <string>

namespace moestro {

enum class Arch : uint8_t { kLlama, kQwen2Moe, kQwen3Moe, kOlmoe, kPhimoe };

struct RopeSpec {
  uint32_t n_dims = 0;  // rotated dimensions of each head
  float freq_base = 10000.0F;
  float freq_scale = 1.0F;   // 1 / linear or YaRN factor
  float ext_factor = 0.0F;   // 1 with YaRN
  float attn_factor = 1.0F;  // magnitude; phimoe's long-context factor goes here too
  float beta_fast = 32.0F;
  float beta_slow = 1.0F;
  uint32_t original_context = 0;  // context the model was trained with before scaling
  bool operator==(const RopeSpec&) const = default;
};

struct RouterSpec {
  uint32_t n_expert = 0;
  uint32_t n_used = 0;        // K: experts per token
  bool renormalise = false;   // weights of the K chosen divided by their sum
  float weight_scale = 1.0F;  // applied last
  bool operator==(const RouterSpec&) const = default;
};

struct ModelSpec {
  Arch arch = Arch::kLlama;
  std::string arch_name;  // as in general.architecture
  std::string name;       // general.name, may be empty
  uint32_t n_layer = 0;
  uint32_t n_embd = 0;
  uint32_t n_head = 0;
  uint32_t n_head_kv = 0;
  uint32_t head_dim_k = 0;
  uint32_t head_dim_v = 0;
  uint32_t n_ff_expert = 0;
  uint32_t n_ff_shared = 0;  // 0: no shared expert
  uint32_t n_vocab = 0;
  uint32_t n_ctx_train = 0;
  float rms_eps = 1e-5F;
  float clamp_kqv = 0.0F;    // 0: off (olmoe option)
  bool tied_output = false;  // token_embd serves as output
  RopeSpec rope;
  RouterSpec router;

  uint32_t n_embd_k() const { return n_head_kv * head_dim_k; }
  uint32_t n_embd_v() const { return n_head_kv * head_dim_v; }
};

}  // namespace moestro
