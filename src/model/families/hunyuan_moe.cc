// SPDX-License-Identifier: MIT
// Hunyuan-A13B: q and k are normalised per head after their rotation, and a shared expert without a
// gate of its own.
#include "model/families/families.h"

namespace moestro {

Family HunyuanMoe() {
  Family family{.name = "hunyuan-moe",
                .attention = {.qk_norm = QkNorm::kAfterRope},
                .router = {.renormalise = true, .has_groups = true, .scales_by_key = false},
                .shared_expert = SharedExpert::kOwnWidth,
                .model_tensors = CommonModelTensors(),
                .layer_tensors = CommonLayerTensors(),
                .written = {.has_free_heads = true,
                            .can_be_tied = true,
                            .has_head_length_keys = true,
                            .has_expert_length_key = true}};
  LayerRoles<Presence>& layer = family.layer_tensors;
  RequireQkNorms(layer);
  RequireSharedExpert(layer);
  return family;
}

}  // namespace moestro
