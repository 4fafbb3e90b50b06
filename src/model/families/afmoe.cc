// SPDX-License-Identifier: MIT
// Trinity (Arcee): of each four layers three have a window and are rotated; sigmoid gates weigh the
// output of attention; attention and feed-forward parts are normed before and after; a sigmoid
// router with a bias, and shared experts.
#include "model/families/families.h"

namespace moestro {

Family AfMoe() {
  Family family{.name = "afmoe",
                .attention = {.qk_norm = QkNorm::kPerHead, .output_gate = OutputGate::kSigmoid},
                .router = {.gating = Gating::kSigmoid,
                           .gating_key = Presence::kOptional,
                           .renormalise_by_key = true,
                           .has_groups = true},
                .windows = {.period = 4, .is_optional = true, .unrotated_every = 4},
                .feed_forward_length = FeedForwardLength::kDenseLayer,
                .shared_expert = SharedExpert::kCounted,
                .has_dense_layers = true,
                .has_post_norms = true,
                .scales_embedding = true,
                .model_tensors = CommonModelTensors(),
                .layer_tensors = CommonLayerTensors(),
                .written = {.has_free_heads = true,
                            .can_be_tied = true,
                            .has_head_length_keys = true,
                            .weights_scale = 2.826F}};
  LayerRoles<Presence>& layer = family.layer_tensors;
  RequireQkNorms(layer);
  layer.attn_gate = layer.attn_post_norm = layer.ffn_post_norm = Presence::kRequired;
  layer.selection_b = Presence::kRequired;
  RequireSharedExpert(layer);
  RequireDenseBlock(layer);
  return family;
}

}  // namespace moestro
