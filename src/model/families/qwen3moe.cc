// SPDX-License-Identifier: MIT
// Qwen3 MoE: q and k are normalised per head before rotation.
#include "model/families/families.h"

namespace moestro {

Family Qwen3Moe() {
  Family family{
      .name = "qwen3moe",
      .attention = {.qk_norm = QkNorm::kPerHead},
      .router = {.renormalise = true},
      .feed_forward_length = FeedForwardLength::kUsedExperts,
      .model_tensors = CommonModelTensors(),
      .layer_tensors = CommonLayerTensors(),
      .written = {.has_free_heads = true, .can_be_tied = true, .has_head_length_keys = true}};
  RequireQkNorms(family.layer_tensors);
  return family;
}

}  // namespace moestro
