// SPDX-License-Identifier: MIT
// Qwen3-Next, Qwen3-Coder-Next: as Qwen3.5, with key heads shared by neighbours, and in older files
// with one matrix for all that a delta net projects.
#include "model/families/families.h"

namespace moestro {

Family Qwen3Next() {
  Family family{.name = "qwen3next",
                .attention = {.qk_norm = QkNorm::kPerHead, .output_gate = OutputGate::kWithQuery},
                .router = {.renormalise = true, .scales_by_key = false},
                .states = {.mixer = StateMixer::kDeltaNet, .sharing = HeadSharing::kConsecutive},
                .feed_forward_length = FeedForwardLength::kUsedExperts,
                .shared_expert = SharedExpert::kOwnWidth,
                .has_next_token_layers = true,
                .model_tensors = CommonModelTensors(),
                .layer_tensors = CommonLayerTensors(),
                .written = {.has_free_heads = true,
                            .can_be_tied = true,
                            .has_head_length_keys = true,
                            .has_rope_length_key = true,
                            .has_other_names = true,
                            .rotates_quarter = true}};
  LayerRoles<Presence>& layer = family.layer_tensors;
  RequireQkNorms(layer);
  RequireDeltaNet(layer);
  // ReadWeights() demands these two tensors, or one for both.
  layer.delta_qkv = Presence::kUsual;
  layer.delta_gate = Presence::kUsual;
  layer.state_in = Presence::kOptional;
  layer.state_beta_alpha = Presence::kRequired;
  layer.shared_router = Presence::kRequired;
  RequireSharedExpert(layer);
  return family;
}

}  // namespace moestro
