// SPDX-License-Identifier: MIT
// Laguna: of each four layers three may have a window, with a rotation and a number of heads of
// their own; softplus gates weigh the output of attention; a sigmoid router with a bias, and a
// shared expert.
#include "model/families/families.h"

namespace moestro {

Family Laguna() {
  Family family{
      .name = "laguna",
      .attention = {.qk_norm = QkNorm::kPerHead, .output_gate = OutputGate::kSoftplus},
      .router = {.gating = Gating::kSigmoid,
                 .gating_key = Presence::kOptional,
                 .renormalise_by_key = true,
                 .has_groups = true},
      .windows = {.period = 4, .is_first = true, .is_optional = true, .rotates_plainly = true},
      .feed_forward_length = FeedForwardLength::kDenseLayer,
      .shared_expert = SharedExpert::kLikeExpert,
      .has_dense_layers = true,
      .model_tensors = CommonModelTensors(),
      .layer_tensors = CommonLayerTensors(),
      .written = {.has_free_heads = true,
                  .can_be_tied = true,
                  .has_head_length_keys = true,
                  .weights_scale = 2.5F}};
  LayerRoles<Presence>& layer = family.layer_tensors;
  RequireQkNorms(layer);
  layer.attn_gate = Presence::kRequired;
  layer.selection_b = Presence::kRequired;
  RequireSharedExpert(layer);
  RequireDenseBlock(layer);
  return family;
}

}  // namespace moestro
