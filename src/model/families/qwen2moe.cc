// SPDX-License-Identifier: MIT
// Qwen1.5-MoE, Qwen2-MoE: biases on q, k, v and a shared expert with a gate of its own.
#include "model/families/families.h"

namespace moestro {

Family Qwen2Moe() {
  Family family{.name = "qwen2moe",
                .feed_forward_length = FeedForwardLength::kUsedExperts,
                .shared_expert = SharedExpert::kOwnWidth,
                .model_tensors = CommonModelTensors(),
                .layer_tensors = CommonLayerTensors()};
  family.layer_tensors.shared_router = Presence::kRequired;
  RequireSharedExpert(family.layer_tensors);
  for (Presence* bias : {&family.layer_tensors.attn_q_b, &family.layer_tensors.attn_k_b,
                         &family.layer_tensors.attn_v_b}) {
    *bias = Presence::kUsual;
  }
  return family;
}

}  // namespace moestro
