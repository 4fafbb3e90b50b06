// SPDX-License-Identifier: MIT
// dots.llm1: a dense layer or more before the experts, a shared expert without a gate, and a router
// whose sigmoid probabilities are shifted by a bias when it chooses.
#include "model/families/families.h"

namespace moestro {

Family Dots1() {
  Family family{.name = "dots1",
                .attention = {.qk_norm = QkNorm::kPerHead},
                .router = {.gating = Gating::kSigmoid,
                           .gating_key = Presence::kOptional,
                           .renormalise_by_key = true},
                .feed_forward_length = FeedForwardLength::kDenseLayer,
                .shared_expert = SharedExpert::kCounted,
                .has_dense_layers = true,
                .model_tensors = CommonModelTensors(),
                .layer_tensors = CommonLayerTensors(),
                .written = {.shares_kv_heads = false, .weights_scale = 2.5F}};
  LayerRoles<Presence>& layer = family.layer_tensors;
  RequireQkNorms(layer);
  layer.selection_b = Presence::kUsual;
  RequireSharedExpert(layer);
  RequireDenseBlock(layer);
  return family;
}

}  // namespace moestro
