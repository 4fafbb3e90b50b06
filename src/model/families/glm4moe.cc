// SPDX-License-Identifier: MIT
// GLM-4.5 to 4.7: half of each head is rotated, a sigmoid router with a bias, a shared expert, and
// layers behind the others that predict further tokens. Large ones have norms of q and k.
#include "model/families/families.h"

namespace moestro {

Family Glm4Moe() {
  Family family{.name = "glm4moe",
                .attention = {.qk_norm = QkNorm::kPerHead},
                .router = {.gating = Gating::kSigmoid,
                           .gating_key = Presence::kOptional,
                           .renormalise_by_key = true,
                           .has_groups = true},
                .feed_forward_length = FeedForwardLength::kDenseLayer,
                .shared_expert = SharedExpert::kCounted,
                .has_dense_layers = true,
                .has_next_token_layers = true,
                .model_tensors = CommonModelTensors(),
                .layer_tensors = CommonLayerTensors(),
                .written = {.has_free_heads = true,
                            .can_be_tied = true,
                            .has_head_length_keys = true,
                            .has_rope_length_key = true,
                            .has_other_names = true,
                            .rotates_half = true,
                            .weights_scale = 2.5F}};
  LayerRoles<Presence>& layer = family.layer_tensors;
  layer.attn_q_norm = Presence::kOptional;
  layer.attn_k_norm = Presence::kOptional;
  for (Presence* bias : {&layer.attn_q_b, &layer.attn_k_b, &layer.attn_v_b}) {
    *bias = Presence::kUsual;
  }
  layer.selection_b = Presence::kRequired;
  RequireSharedExpert(layer);
  RequireDenseBlock(layer);
  return family;
}

}  // namespace moestro
