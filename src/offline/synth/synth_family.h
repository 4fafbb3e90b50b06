// SPDX-License-Identifier: MIT
// What files of a family hold besides sizes: which tensors and metadata a synthetic model gets. One
// row per family that model/families knows.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/model_spec.h"

namespace moestro {

struct SynthFamily {
  std::string_view arch;         // general.architecture
  bool has_norm_biases = false;  // of norms, of attention's output and of the output matrix
  bool has_qkv_biases = false;
  QkNorm qk_norm = QkNorm::kNone;
  bool has_selection_bias = false;
  bool has_free_heads = false;  // heads may be wider or narrower together than the embedding
  bool shares_kv_heads = true;
  bool can_be_tied = false;
  bool has_rope_factors = false;  // a long and a short set

  enum class Shared : uint8_t { kNone, kGated, kCounted } shared = Shared::kNone;
  bool has_dense_layers = false;  // the first ones

  // As the stock converters write them.
  enum class FeedForward : uint8_t { kExpert, kUsedExperts, kShared, kDense };
  FeedForward feed_forward_length = FeedForward::kExpert;
  bool has_expert_length_key = false;
  bool has_head_length_keys = false;  // else only where they are no quotient
  bool has_rope_length_key = false;
  uint32_t gating_key = 0;  // expert_gating_func; 0: not written
  float weights_scale = 0;  // expert_weights_scale with expert_weights_norm; 0: not written
};

std::span<const SynthFamily> SynthFamilies();
const SynthFamily* FindSynthFamily(std::string_view arch);  // nullptr: unknown
std::string SynthFamilyNames();                             // "llama, olmoe"

}  // namespace moestro
