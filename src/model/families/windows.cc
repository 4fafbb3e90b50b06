// SPDX-License-Identifier: MIT
// Families with layers that attend to the last positions alone.
#include <string_view>

#include "model/families/families.h"

namespace moestro {

// gpt-oss: every second layer has a window, each head has a sink, all projections have biases, and
// weights of experts are a softmax over the chosen logits.
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

// Gemma 4 with experts: of each six layers five have a window, with heads of their own; values are
// normed, and a layer without a matrix for values uses the keys; a router on the residual; a dense
// block beside the experts, each with norms of its own; logits have a cap.

namespace {

// Reads the cap of logits; refuses keys of the smaller models without experts, and missing rotation
// factors.
Status ReadGemma4(const MetaKeys& keys, ModelSpec& spec) {
  for (const std::string_view key :
       {"embedding_length_per_layer_input", "attention.shared_kv_layers"}) {
    TRY(const auto value, keys.file().FindUniformUint(keys.Full(key)));
    if (value.value_or(0) == 0) continue;
    return Fail(Errc::kInvalidFile, "{}: {} is {}, expected 0 beside experts", keys.path(),
                keys.Full(key), *value);
  }
  // rope_freqs.weight chooses the rotated pairs of layers without a window.
  if (spec.first_rotated() != nullptr && keys.file().Find("rope_freqs.weight") == nullptr) {
    return Fail(Errc::kInvalidFile, "{}: tensor 'rope_freqs.weight' is missing; convert it again",
                keys.path());
  }
  constexpr float kUsualCap = 30.0F;  // also without the key
  TRY(const auto cap, keys.FindFactor("final_logit_softcapping"));
  spec.logit_cap = cap.value_or(kUsualCap);
  return {};
}

}  // namespace

Family Gemma4() {
  Family family{.name = "gemma4",
                .attention = {.qk_norm = QkNorm::kPerHead, .norms_values = true},
                .experts = {.activation = Activation::kGeglu},
                .router = {.renormalise = true, .scales_by_key = false},
                .windows = {.period = 6,
                            .rotates_plainly = true,
                            .has_own_heads = true,
                            .base = 10000.0F,
                            .keeps_factor = true},
                .feed_forward_length = FeedForwardLength::kDenseLayer,
                .has_dense_beside = true,
                .has_post_norms = true,
                .scales_embedding = true,
                .attention_scale = 1.0F,
                .may_share_values = true,
                .model_tensors = CommonModelTensors(),
                .layer_tensors = CommonLayerTensors(),
                .read = ReadGemma4,
                .written = {.has_free_heads = true,
                            .can_be_tied = true,
                            .has_head_length_keys = true,
                            .has_rope_length_key = true}};
  family.model_tensors.rope_freqs = Presence::kUsual;
  LayerRoles<Presence>& layer = family.layer_tensors;
  RequireQkNorms(layer);
  RequireDenseBlock(layer);
  layer.attn_post_norm = layer.ffn_post_norm = Presence::kRequired;
  layer.router_scale = layer.dense_post_norm = Presence::kRequired;
  layer.experts_norm = layer.experts_post_norm = Presence::kRequired;
  layer.down_scale = layer.output_scale = Presence::kUsual;
  return family;
}

// Trinity (Arcee): of each four layers three have a window and are rotated; sigmoid gates weigh the
// output of attention; attention and feed-forward parts are normed before and after; a sigmoid
// router with a bias, and shared experts.
Family AfMoe() {
  Family family{.name = "afmoe",
                .attention = {.qk_norm = QkNorm::kPerHead, .output_gate = OutputGate::kSigmoid},
                .router = {.gating = Gating::kSigmoid,
                           .gating_key = Presence::kOptional,
                           .renormalise_by_key = true,
                           .has_groups = true},
                .windows = {.period = 4, .is_optional = true, .unrotated_every = 4},
                .feed_forward_length = FeedForwardLength::kDenseLayer,
                .shared_expert = SharedExpertKind::kCounted,
                .has_dense_layers = true,
                .has_post_norms = true,
                .scales_embedding = true,
                .model_tensors = CommonModelTensors(),
                .layer_tensors = CommonLayerTensors(),
                .written = {.has_free_heads = true,
                            .can_be_tied = true,
                            .has_head_length_keys = true,
                            .weights_scale = 2.826F}};
  LayerRoles<Presence>& layer = family.layer_tensors;
  RequireQkNorms(layer);
  layer.attn_gate = layer.attn_post_norm = layer.ffn_post_norm = Presence::kRequired;
  layer.selection_b = Presence::kRequired;
  RequireSharedExpert(layer);
  RequireDenseBlock(layer);
  return family;
}

// EXAONE-MoE: of each four layers three have a window, and only these are rotated; a sigmoid router
// with a bias, and a shared expert.
Family ExaoneMoe() {
  Family family{
      .name = "exaone-moe",
      .attention = {.qk_norm = QkNorm::kPerHead},
      .router = {.gating = Gating::kSigmoid,
                 .gating_key = Presence::kRequired,
                 .renormalise_by_key = true,
                 .has_groups = true},
      .windows = {.period = 4, .rotates_all = false},
      .feed_forward_length = FeedForwardLength::kDenseLayer,
      .shared_expert = SharedExpertKind::kLikeExpert,
      .has_dense_layers = true,
      .has_next_token_layers = true,
      .model_tensors = CommonModelTensors(),
      .layer_tensors = CommonLayerTensors(),
      .written = {.has_free_heads = true, .has_head_length_keys = true, .weights_scale = 2.5F}};
  family.model_tensors.output = Presence::kRequired;
  family.model_tensors.rope_freqs = Presence::kOptional;
  LayerRoles<Presence>& layer = family.layer_tensors;
  RequireQkNorms(layer);
  layer.selection_b = Presence::kUsual;
  RequireSharedExpert(layer);
  RequireDenseBlock(layer);
  return family;
}

// Laguna: of each four layers three may have a window, with a rotation and a number of heads of
// their own; softplus gates weigh the output of attention; a sigmoid router with a bias, and a
// shared expert.
Family Laguna() {
  Family family{
      .name = "laguna",
      .attention = {.qk_norm = QkNorm::kPerHead, .output_gate = OutputGate::kSoftplus},
      .router = {.gating = Gating::kSigmoid,
                 .gating_key = Presence::kOptional,
                 .renormalise_by_key = true,
                 .has_groups = true},
      .windows = {.period = 4, .is_first = true, .is_optional = true, .rotates_plainly = true},
      .feed_forward_length = FeedForwardLength::kDenseLayer,
      .shared_expert = SharedExpertKind::kLikeExpert,
      .has_dense_layers = true,
      .model_tensors = CommonModelTensors(),
      .layer_tensors = CommonLayerTensors(),
      .written = {.has_free_heads = true,
                  .can_be_tied = true,
                  .has_head_length_keys = true,
                  .weights_scale = 2.5F}};
  LayerRoles<Presence>& layer = family.layer_tensors;
  RequireQkNorms(layer);
  layer.attn_gate = Presence::kRequired;
  layer.selection_b = Presence::kRequired;
  RequireSharedExpert(layer);
  RequireDenseBlock(layer);
  return family;
}

}  // namespace moestro
