// SPDX-License-Identifier: MIT
// Mixtral: converters permute q and k so that rotation works on adjacent pairs.
#include "model/families/families.h"

namespace moestro {

Family Llama() {
  Family family{
      .name = "llama",
      .attention = {.rope_pairs = RopePairs::kAdjacent},
      .router = {.renormalise = true},
      .model_tensors = CommonModelTensors(),
      .layer_tensors = CommonLayerTensors(),
      .written = {.has_free_heads = true, .can_be_tied = true, .has_rope_length_key = true}};
  family.model_tensors.rope_freqs = Presence::kOptional;
  return family;
}

}  // namespace moestro
