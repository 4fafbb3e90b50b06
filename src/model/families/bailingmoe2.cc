// SPDX-License-Identifier: MIT
// Ling 2 and Ring 2: one projection gives q, k and v, half of each head is rotated, and a sigmoid
// router with a bias chooses within the best groups of experts.
#include "model/families/families.h"

namespace moestro {

Family BailingMoe2() {
  Family family{.name = "bailingmoe2",
                .attention = {.qk_norm = QkNorm::kPerHead},
                .router = {.gating = Gating::kSigmoid,
                           .gating_key = Presence::kRequired,
                           .renormalise_by_key = true,
                           .has_groups = true},
                .feed_forward_length = FeedForwardLength::kDenseLayer,
                .shared_expert = SharedExpert::kCounted,
                .has_dense_layers = true,
                .has_next_token_layers = true,
                .model_tensors = CommonModelTensors(),
                .layer_tensors = CommonLayerTensors(),
                .written = {.has_rope_length_key = true,
                            .has_groups = true,
                            .rotates_half = true,
                            .weights_scale = 2.5F}};
  family.model_tensors.output = Presence::kRequired;
  LayerRoles<Presence>& layer = family.layer_tensors;
  layer.attn_qkv = Presence::kRequired;
  layer.attn_q = layer.attn_k = layer.attn_v = Presence::kNone;
  RequireQkNorms(layer);
  layer.selection_b = Presence::kUsual;
  RequireSharedExpert(layer);
  RequireDenseBlock(layer);
  return family;
}

}  // namespace moestro
