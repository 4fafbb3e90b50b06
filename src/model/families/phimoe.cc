// SPDX-License-Identifier: MIT
// Phi-3.5-MoE: norms and projections with biases, two sets of rope factors, and a query that is
// scaled before the scores are taken.
#include "model/families/families.h"

namespace moestro {

Family Phimoe() {
  Family family{.name = "phimoe",
                .attention = {.scale_query = true, .long_short_factors = true},
                .router = {.renormalise = true},
                .model_tensors = CommonModelTensors(),
                .layer_tensors = CommonLayerTensors(),
                .written = {.has_rope_length_key = true}};
  family.model_tensors.output_b = Presence::kRequired;
  family.model_tensors.output_norm_b = Presence::kRequired;
  family.model_tensors.rope_factors_long = Presence::kUsual;
  family.model_tensors.rope_factors_short = Presence::kUsual;
  family.layer_tensors.attn_norm_b = Presence::kRequired;
  family.layer_tensors.attn_out_b = Presence::kRequired;
  family.layer_tensors.ffn_norm_b = Presence::kRequired;
  for (Presence* bias : {&family.layer_tensors.attn_q_b, &family.layer_tensors.attn_k_b,
                         &family.layer_tensors.attn_v_b}) {
    *bias = Presence::kUsual;
  }
  return family;
}

}  // namespace moestro
