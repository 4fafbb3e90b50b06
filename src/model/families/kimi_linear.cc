// SPDX-License-Identifier: MIT
// Kimi Linear: three layers of four are delta nets in which each value of a key decays on its own,
// the fourth is latent attention without rotation; a sigmoid router with a bias.
#include "model/families/families.h"

namespace moestro {

Family KimiLinear() {
  Family family{
      .name = "kimi-linear",
      .router = {.gating = Gating::kSigmoid,
                 .gating_key = Presence::kRequired,
                 .renormalise = true},
      .latent = {.is_used = true, .rotates = false},
      .states = {.mixer = StateMixer::kKimiDelta, .layers = StateLayers::kWithoutKvHeads},
      .feed_forward_length = FeedForwardLength::kDenseLayer,
      .shared_expert = SharedExpert::kCounted,
      .has_dense_layers = true,
      .model_tensors = CommonModelTensors(),
      .layer_tensors = CommonLayerTensors(),
      .written = {.has_free_heads = true, .has_rope_length_key = true, .weights_scale = 2.446F}};
  family.model_tensors.output = Presence::kRequired;
  LayerRoles<Presence>& layer = family.layer_tensors;
  RequireLatentAttention(layer);
  RequireKimiDelta(layer);
  layer.selection_b = Presence::kRequired;
  RequireSharedExpert(layer);
  RequireDenseBlock(layer);
  return family;
}

}  // namespace moestro
