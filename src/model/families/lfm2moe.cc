// SPDX-License-Identifier: MIT
// LFM2 with experts: most layers are short convolutions, the others attention; a sigmoid router
// with a bias.
#include "model/families/families.h"

namespace moestro {

Family Lfm2Moe() {
  Family family{.name = "lfm2moe",
                .attention = {.qk_norm = QkNorm::kPerHead},
                .router = {.gating = Gating::kSigmoid,
                           .gating_key = Presence::kRequired,
                           .renormalise = true,
                           .has_groups = true,
                           .scales_by_key = false},
                .states = {.mixer = StateMixer::kShortConv, .layers = StateLayers::kWithoutKvHeads},
                .feed_forward_length = FeedForwardLength::kDenseLayer,
                .has_dense_layers = true,
                .has_other_norm_name = true,
                .model_tensors = CommonModelTensors(),
                .layer_tensors = CommonLayerTensors(),
                .written = {.can_be_tied = true}};
  LayerRoles<Presence>& layer = family.layer_tensors;
  RequireQkNorms(layer);
  for (Presence* part : {&layer.short_in, &layer.short_conv, &layer.short_out}) {
    *part = Presence::kRequired;
  }
  layer.selection_b = Presence::kRequired;
  RequireDenseBlock(layer);
  return family;
}

}  // namespace moestro
