// SPDX-License-Identifier: MIT
// Gemma 4 with experts: of each six layers five have a window, with heads of their own; values are
// normed, and a layer without a matrix for values uses the keys; a router on the residual; a dense
// block beside the experts, each with norms of its own; logits have a cap.
#include <string_view>

#include "model/families/families.h"

namespace moestro {
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

}  // namespace moestro
