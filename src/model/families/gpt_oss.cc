// SPDX-License-Identifier: MIT
// gpt-oss: every second layer has a window, each head has a sink, all projections have biases, and
// weights of experts are a softmax over the chosen logits.
#include "model/families/families.h"

namespace moestro {

Family GptOss() {
  Family family{.name = "gpt-oss",
                .experts = {.activation = Activation::kSwigluOai},
                .router = {.gating = Gating::kSoftmaxOfChosen, .has_groups = true},
                .windows = {.period = 2},
                .feed_forward_length = FeedForwardLength::kDenseLayer,
                .model_tensors = CommonModelTensors(),
                .layer_tensors = CommonLayerTensors(),
                .written = {.has_free_heads = true,
                            .has_head_length_keys = true,
                            .has_other_names = true,
                            .has_yarn = true}};
  family.model_tensors.output = Presence::kRequired;
  LayerRoles<Presence>& layer = family.layer_tensors;
  layer.attn_sinks = Presence::kRequired;
  for (Presence* bias : {&layer.attn_q_b, &layer.attn_k_b, &layer.attn_v_b, &layer.attn_out_b,
                         &layer.router_b, &layer.gate_b, &layer.up_b, &layer.down_b}) {
    *bias = Presence::kRequired;
  }
  return family;
}

}  // namespace moestro
