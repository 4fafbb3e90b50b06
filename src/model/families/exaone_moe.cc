// SPDX-License-Identifier: MIT
// EXAONE-MoE: of each four layers three have a window, and only these are rotated; a sigmoid router
// with a bias, and a shared expert.
#include "model/families/families.h"

namespace moestro {

Family ExaoneMoe() {
  Family family{
      .name = "exaone-moe",
      .attention = {.qk_norm = QkNorm::kPerHead},
      .router = {.gating = Gating::kSigmoid,
                 .gating_key = Presence::kRequired,
                 .renormalise_by_key = true,
                 .has_groups = true},
      .windows = {.period = 4, .rotates_all = false},
      .feed_forward_length = FeedForwardLength::kDenseLayer,
      .shared_expert = SharedExpert::kLikeExpert,
      .has_dense_layers = true,
      .has_next_token_layers = true,
      .model_tensors = CommonModelTensors(),
      .layer_tensors = CommonLayerTensors(),
      .written = {.has_free_heads = true, .has_head_length_keys = true, .weights_scale = 2.5F}};
  family.model_tensors.output = Presence::kRequired;
  family.model_tensors.rope_freqs = Presence::kOptional;
  LayerRoles<Presence>& layer = family.layer_tensors;
  RequireQkNorms(layer);
  layer.selection_b = Presence::kUsual;
  RequireSharedExpert(layer);
  RequireDenseBlock(layer);
  return family;
}

}  // namespace moestro
