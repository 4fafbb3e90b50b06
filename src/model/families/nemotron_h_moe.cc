// SPDX-License-Identifier: MIT
// Nemotron 3: a layer is Mamba-2, attention without rotation, or experts, each alone. Experts have
// two matrices and a squared ReLU; those of the large models work in a smaller space.
#include "model/families/families.h"

namespace moestro {

Family NemotronHMoe() {
  Family family{
      .name = "nemotron_h_moe",
      .experts = {.activation = Activation::kReluSquared},
      .router = {.gating = Gating::kSigmoid, .renormalise_by_key = true, .has_groups = true},
      .states = {.mixer = StateMixer::kMamba2, .layers = StateLayers::kWithoutKvHeads},
      .feed_forward_length = FeedForwardLength::kUsedExperts,
      .shared_expert = SharedExpert::kOwnWidth,
      .has_lone_parts = true,
      .has_latent_experts = true,
      .has_next_token_layers = true,
      .has_other_epsilon_name = true,
      .rotates = false,
      .model_tensors = CommonModelTensors(),
      .layer_tensors = CommonLayerTensors(),
      .written = {.has_free_heads = true,
                  .can_be_tied = true,
                  .has_head_length_keys = true,
                  .weights_scale = 2.5F}};
  LayerRoles<Presence>& layer = family.layer_tensors;
  RequireMamba2(layer);
  layer.ffn_norm = Presence::kNone;
  layer.selection_b = Presence::kRequired;
  layer.latent_down = layer.latent_up = Presence::kRequired;
  layer.shared_up = layer.shared_down = Presence::kRequired;
  return family;
}

}  // namespace moestro
