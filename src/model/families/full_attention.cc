// SPDX-License-Identifier: MIT
// Families whose layers attend to all earlier positions.
#include "model/families/families.h"

namespace moestro {

// Mixtral: converters permute q and k so that rotation works on adjacent pairs.
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

// OLMoE: q and k are normalised as whole vectors before they are cut into heads, and may be
// clamped before that.

namespace {

Status ReadClamp(const MetaKeys& keys, ModelSpec& spec) {
  TRY(const auto clamp, keys.FindFactor("attention.clamp_kqv"));
  for (LayerSpec& layer : spec.layers) {
    std::get<AttentionSpec>(layer.mixer).clamp_kqv = clamp.value_or(0.0F);
  }
  return {};
}

}  // namespace

Family Olmoe() {
  Family family{.name = "olmoe",
                .attention = {.qk_norm = QkNorm::kWholeVector},
                .model_tensors = CommonModelTensors(),
                .layer_tensors = CommonLayerTensors(),
                .read = ReadClamp,
                .written = {.shares_kv_heads = false}};
  RequireQkNorms(family.layer_tensors);
  return family;
}

// Phi-3.5-MoE: norms and projections with biases, two sets of rope factors, and a query that is
// scaled before the scores are taken.
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

// Qwen1.5-MoE, Qwen2-MoE: biases on q, k, v and a shared expert with a gate of its own.
Family Qwen2Moe() {
  Family family{.name = "qwen2moe",
                .feed_forward_length = FeedForwardLength::kUsedExperts,
                .shared_expert = SharedExpertKind::kOwnWidth,
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

// Qwen3 MoE: q and k are normalised per head before rotation.
Family Qwen3Moe() {
  Family family{
      .name = "qwen3moe",
      .attention = {.qk_norm = QkNorm::kPerHead},
      .router = {.renormalise = true},
      .feed_forward_length = FeedForwardLength::kUsedExperts,
      .model_tensors = CommonModelTensors(),
      .layer_tensors = CommonLayerTensors(),
      .written = {.has_free_heads = true, .can_be_tied = true, .has_head_length_keys = true}};
  RequireQkNorms(family.layer_tensors);
  return family;
}

// ERNIE 4.5: rotation of adjacent pairs, a softmax router whose choice is shifted by a bias, a
// shared expert in most sizes, and layers without experts before or between the others.
Family Ernie45Moe() {
  Family family{.name = "ernie4_5-moe",
                .attention = {.rope_pairs = RopePairs::kAdjacent},
                .router = {.renormalise = true, .has_groups = true, .scales_by_key = false},
                .feed_forward_length = FeedForwardLength::kDenseLayer,
                .shared_expert = SharedExpertKind::kOptional,
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

// Hunyuan-A13B: q and k are normalised per head after their rotation, and a shared expert without a
// gate of its own.
Family HunyuanMoe() {
  Family family{.name = "hunyuan-moe",
                .attention = {.qk_norm = QkNorm::kAfterRope},
                .router = {.renormalise = true, .has_groups = true, .scales_by_key = false},
                .shared_expert = SharedExpertKind::kOwnWidth,
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

// dots.llm1: a dense layer or more before the experts, a shared expert without a gate, and a router
// whose sigmoid probabilities are shifted by a bias when it chooses.
Family Dots1() {
  Family family{.name = "dots1",
                .attention = {.qk_norm = QkNorm::kPerHead},
                .router = {.gating = Gating::kSigmoid,
                           .gating_key = Presence::kOptional,
                           .renormalise_by_key = true},
                .feed_forward_length = FeedForwardLength::kDenseLayer,
                .shared_expert = SharedExpertKind::kCounted,
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

// Ling 2 and Ring 2: one projection gives q, k and v, half of each head is rotated, and a sigmoid
// router with a bias chooses within the best groups of experts.
Family BailingMoe2() {
  Family family{.name = "bailingmoe2",
                .attention = {.qk_norm = QkNorm::kPerHead},
                .router = {.gating = Gating::kSigmoid,
                           .gating_key = Presence::kRequired,
                           .renormalise_by_key = true,
                           .has_groups = true},
                .feed_forward_length = FeedForwardLength::kDenseLayer,
                .shared_expert = SharedExpertKind::kCounted,
                .has_dense_layers = true,
                .has_next_token_layers = true,
                .can_predict = true,
                .model_tensors = CommonModelTensors(),
                .layer_tensors = CommonLayerTensors(),
                .written = {.has_rope_length_key = true,
                            .has_groups = true,
                            .rotates_half = true,
                            .weights_scale = 2.5F}};
  family.model_tensors.output = Presence::kRequired;
  LayerRoles<Presence>& layer = family.layer_tensors;
  layer.attn_qkv = Presence::kRequired;
  layer.attn_q = layer.attn_k = layer.attn_v = Presence::kNone;
  RequireQkNorms(layer);
  layer.selection_b = Presence::kUsual;
  RequireSharedExpert(layer);
  RequireDenseBlock(layer);
  RequirePrediction(layer);
  return family;
}

// GLM-4.5 to 4.7: half of each head is rotated, a sigmoid router with a bias, a shared expert, and
// layers behind the others that predict further tokens. Large ones have norms of q and k.
Family Glm4Moe() {
  Family family{.name = "glm4moe",
                .attention = {.qk_norm = QkNorm::kPerHead},
                .router = {.gating = Gating::kSigmoid,
                           .gating_key = Presence::kOptional,
                           .renormalise_by_key = true,
                           .has_groups = true},
                .feed_forward_length = FeedForwardLength::kDenseLayer,
                .shared_expert = SharedExpertKind::kCounted,
                .has_dense_layers = true,
                .has_next_token_layers = true,
                .can_predict = true,
                .model_tensors = CommonModelTensors(),
                .layer_tensors = CommonLayerTensors(),
                .written = {.has_free_heads = true,
                            .can_be_tied = true,
                            .has_head_length_keys = true,
                            .has_rope_length_key = true,
                            .has_other_names = true,
                            .rotates_half = true,
                            .weights_scale = 2.5F}};
  LayerRoles<Presence>& layer = family.layer_tensors;
  layer.attn_q_norm = Presence::kOptional;
  layer.attn_k_norm = Presence::kOptional;
  for (Presence* bias : {&layer.attn_q_b, &layer.attn_k_b, &layer.attn_v_b}) {
    *bias = Presence::kUsual;
  }
  layer.selection_b = Presence::kRequired;
  RequireSharedExpert(layer);
  RequireDenseBlock(layer);
  RequirePrediction(layer);
  return family;
}

// MiniMax-M2: q and k are normalised as whole vectors, half of each head is rotated, and a sigmoid
// router has a bias.
Family MiniMaxM2() {
  Family family{.name = "minimax-m2",
                .attention = {.qk_norm = QkNorm::kWholeVector},
                .router = {.gating = Gating::kSigmoid,
                           .gating_key = Presence::kRequired,
                           .renormalise = true,
                           .has_groups = true,
                           .scales_by_key = false},
                .model_tensors = CommonModelTensors(),
                .layer_tensors = CommonLayerTensors(),
                .written = {.has_free_heads = true,
                            .has_head_length_keys = true,
                            .has_rope_length_key = true,
                            .has_expert_length_key = true,
                            .rotates_half = true}};
  family.model_tensors.output = Presence::kRequired;
  LayerRoles<Presence>& layer = family.layer_tensors;
  RequireQkNorms(layer);
  layer.selection_b = Presence::kRequired;
  return family;
}

}  // namespace moestro
