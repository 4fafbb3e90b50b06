// SPDX-License-Identifier: MIT
// ERNIE 4.5: rotation of adjacent pairs, a softmax router whose choice is shifted by a bias, a
// shared expert in most sizes, and layers without experts before or between the others.
#include "model/families/families.h"

namespace moestro {

Family Ernie45Moe() {
  Family family{.name = "ernie4_5-moe",
                .attention = {.rope_pairs = RopePairs::kAdjacent},
                .router = {.renormalise = true, .has_groups = true, .scales_by_key = false},
                .feed_forward_length = FeedForwardLength::kDenseLayer,
                .shared_expert = SharedExpert::kOptional,
                .has_dense_layers = true,
                .model_tensors = CommonModelTensors(),
                .layer_tensors = CommonLayerTensors(),
                .written = {.has_free_heads = true,
                            .can_be_tied = true,
                            .has_head_length_keys = true,
                            .has_moe_step_key = true}};
  LayerRoles<Presence>& layer = family.layer_tensors;
  layer.selection_b = Presence::kUsual;
  RequireSharedExpert(layer);
  RequireDenseBlock(layer);
  return family;
}

}  // namespace moestro
