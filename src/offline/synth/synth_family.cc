// SPDX-License-Identifier: MIT
#include "offline/synth/synth_family.h"

#include <algorithm>
#include <array>

namespace moestro {

std::span<const SynthFamily> SynthFamilies() {
  using Shared = SynthFamily::Shared;
  using FeedForward = SynthFamily::FeedForward;
  static constexpr std::array<SynthFamily, 6> kFamilies = {{
      {.arch = "llama", .has_free_heads = true, .can_be_tied = true, .has_rope_length_key = true},
      {.arch = "phimoe",
       .has_norm_biases = true,
       .has_qkv_biases = true,
       .has_rope_factors = true,
       .has_rope_length_key = true},
      {.arch = "qwen2moe",
       .has_qkv_biases = true,
       .shared = Shared::kGated,
       .feed_forward_length = FeedForward::kShared,
       .has_expert_length_key = true},
      {.arch = "olmoe", .qk_norm = QkNorm::kWholeVector, .shares_kv_heads = false},
      {.arch = "qwen3moe",
       .qk_norm = QkNorm::kPerHead,
       .has_free_heads = true,
       .can_be_tied = true,
       .feed_forward_length = FeedForward::kUsedExperts,
       .has_expert_length_key = true,
       .has_head_length_keys = true},
      {.arch = "dots1",
       .qk_norm = QkNorm::kPerHead,
       .has_selection_bias = true,
       .shares_kv_heads = false,
       .shared = Shared::kCounted,
       .has_dense_layers = true,
       .feed_forward_length = FeedForward::kDense,
       .has_expert_length_key = true,
       .gating_key = 2,
       .weights_scale = 2.5F},
  }};
  return kFamilies;
}

const SynthFamily* FindSynthFamily(std::string_view arch) {
  const auto families = SynthFamilies();
  const auto found = std::ranges::find(families, arch, &SynthFamily::arch);
  return found != families.end() ? &*found : nullptr;
}

std::string SynthFamilyNames() {
  std::string names;
  for (const SynthFamily& family : SynthFamilies()) {
    if (!names.empty()) names += ", ";
    names += family.arch;
  }
  return names;
}

}  // namespace moestro
