// SPDX-License-Identifier: MIT
// MiniMax-M2: q and k are normalised as whole vectors, half of each head is rotated, and a sigmoid
// router has a bias.
#include "model/families/families.h"

namespace moestro {

Family MiniMaxM2() {
  Family family{.name = "minimax-m2",
                .attention = {.qk_norm = QkNorm::kWholeVector},
                .router = {.gating = Gating::kSigmoid,
                           .gating_key = Presence::kRequired,
                           .renormalise = true,
                           .has_groups = true,
                           .scales_by_key = false},
                .model_tensors = CommonModelTensors(),
                .layer_tensors = CommonLayerTensors(),
                .written = {.has_free_heads = true,
                            .has_head_length_keys = true,
                            .has_rope_length_key = true,
                            .has_expert_length_key = true,
                            .rotates_half = true}};
  family.model_tensors.output = Presence::kRequired;
  LayerRoles<Presence>& layer = family.layer_tensors;
  RequireQkNorms(layer);
  layer.selection_b = Presence::kRequired;
  return family;
}

}  // namespace moestro
