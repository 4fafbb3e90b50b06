// SPDX-License-Identifier: MIT
// Granite 3 and 4 with experts: embeddings, outputs of layers, logits and scores of attention are
// scaled; some models have a shared expert. In the hybrid models most layers are Mamba-2.
#include <string_view>

#include "model/families/families.h"

namespace moestro {
namespace {

Family Granite(std::string_view name) {
  Family family{
      .name = name,
      .attention = {.rope_pairs = RopePairs::kAdjacent},
      .router = {.renormalise = true, .has_groups = true, .scales_by_key = false},
      .shared_expert = SharedExpert::kOptional,
      .has_scales = true,
      .rotates_by_key = true,
      .model_tensors = CommonModelTensors(),
      .layer_tensors = CommonLayerTensors(),
      .written = {.has_free_heads = true, .can_be_tied = true, .has_head_length_keys = true}};
  family.model_tensors.rope_freqs = Presence::kOptional;
  LayerRoles<Presence>& layer = family.layer_tensors;
  layer.shared_gate = layer.shared_up = layer.shared_down = Presence::kRequired;
  return family;
}

}  // namespace

Family GraniteMoe() { return Granite("granitemoe"); }

Family GraniteHybrid() {
  Family family = Granite("granitehybrid");
  family.states = {.mixer = StateMixer::kMamba2, .layers = StateLayers::kWithoutKvHeads};
  RequireMamba2(family.layer_tensors);
  return family;
}

}  // namespace moestro
