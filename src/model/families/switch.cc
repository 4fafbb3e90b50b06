// SPDX-License-Identifier: MIT
// Switch Transformers: an encoder and a decoder as in T5; some layers have experts, two matrices
// with a ReLU each, of which every row uses one. Files are Moestro's own (docs/switch-format.md).
// Source: W. Fedus, B. Zoph, N. Shazeer, "Switch Transformers", 2021.
#include "model/families/families.h"
#include "model/read_spec.h"

namespace moestro {

Family Switch() {
  Family family{.name = "switch",
                .experts = {.activation = Activation::kRelu},
                .router = {.scales_by_key = false},
                .feed_forward_length = FeedForwardLength::kDenseLayer,
                .has_dense_layers = true,
                .has_encoder = true,
                .rotates = false,
                .model_tensors = CommonModelTensors(),
                .read = ReadEncoderTokens,
                .written = {.has_free_heads = true,
                            .shares_kv_heads = false,
                            .can_be_tied = true,
                            .has_head_length_keys = true,
                            .has_expert_length_key = true}};
  family.model_tensors.encoder_norm = Presence::kRequired;
  // ReadEncoderLayers() decides which layers need norms of feed-forward parts, and biases by
  // distance.
  family.layer_tensors = {.attn_norm = Presence::kRequired,
                          .attn_q = Presence::kRequired,
                          .attn_k = Presence::kRequired,
                          .attn_v = Presence::kRequired,
                          .attn_out = Presence::kRequired,
                          .attn_relative = Presence::kOptional,
                          .ffn_norm = Presence::kOptional,
                          .router = Presence::kRequired,
                          .dense_up = Presence::kRequired,
                          .dense_down = Presence::kRequired};
  return family;
}

}  // namespace moestro
