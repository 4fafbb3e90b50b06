// SPDX-License-Identifier: MIT
#include "model/families/families.h"

#include <algorithm>
#include <array>

namespace moestro {

std::span<const Family> Families() {
  static const std::array families{
      Llama(),      Qwen2Moe(),    Qwen3Moe(),   Olmoe(),        Phimoe(),        Dots1(),
      GptOss(),     Glm4Moe(),     MiniMaxM2(),  Ernie45Moe(),   HunyuanMoe(),    BailingMoe2(),
      ExaoneMoe(),  Qwen35Moe(),   Qwen3Next(),  Lfm2Moe(),      GraniteHybrid(), GraniteMoe(),
      MiniMaxM3(),  Laguna(),      AfMoe(),      NemotronHMoe(), Gemma4(),        DeepSeek2(),
      KimiLinear(), BailingMoe3(), DeepSeek32(), GlmDsa(),       Glm5Next(),      Qwen4Exp(),
      DeepSeek4(),  Switch()};
  return families;
}

const Family* FindFamily(std::span<const Family> families, std::string_view name) {
  const auto found = std::ranges::find(families, name, &Family::name);
  return found != families.end() ? &*found : nullptr;
}

std::string FamilyNames(std::span<const Family> families) {
  std::string list;
  for (const Family& family : families) {
    if (!list.empty()) list += ", ";
    list += family.name;
  }
  return list;
}

ModelRoles<Presence> CommonModelTensors() {
  return {.token_embd = Presence::kRequired,
          .output = Presence::kUsual,
          .output_norm = Presence::kRequired};
}

LayerRoles<Presence> CommonLayerTensors() {
  return {.attn_norm = Presence::kRequired,
          // Separate or fused tensors: ReadWeights() demands one of the two forms.
          .attn_q = Presence::kUsual,
          .attn_k = Presence::kUsual,
          .attn_v = Presence::kUsual,
          .attn_qkv = Presence::kOptional,
          .attn_q_b = Presence::kOptional,
          .attn_k_b = Presence::kOptional,
          .attn_v_b = Presence::kOptional,
          .attn_qkv_b = Presence::kOptional,
          .attn_out = Presence::kRequired,
          .attn_out_b = Presence::kOptional,
          .ffn_norm = Presence::kRequired,
          .router = Presence::kRequired};
}

void RequireQkNorms(LayerRoles<Presence>& layer) {
  layer.attn_q_norm = Presence::kRequired;
  layer.attn_k_norm = Presence::kRequired;
}

void RequirePrediction(LayerRoles<Presence>& layer) {
  layer.predict_embd_norm = Presence::kRequired;
  layer.predict_hidden_norm = Presence::kRequired;
  layer.predict_join = Presence::kRequired;
  layer.predict_head_norm = Presence::kUsual;
}

void RequireSharedExpert(LayerRoles<Presence>& layer) {
  layer.shared_gate = Presence::kRequired;
  layer.shared_up = Presence::kRequired;
  layer.shared_down = Presence::kRequired;
}

void RequireDenseBlock(LayerRoles<Presence>& layer) {
  layer.dense_gate = Presence::kRequired;
  layer.dense_up = Presence::kRequired;
  layer.dense_down = Presence::kRequired;
}

void RequireMamba2(LayerRoles<Presence>& layer) {
  for (Presence* part : {&layer.state_in, &layer.state_conv, &layer.state_dt_b, &layer.state_out,
                         &layer.state_a_column, &layer.mamba_d, &layer.mamba_norm}) {
    *part = Presence::kRequired;
  }
  layer.mamba_conv_b = Presence::kUsual;
}

void RequireLatentAttention(LayerRoles<Presence>& layer) {
  for (Presence* part : {&layer.attn_q_b, &layer.attn_k, &layer.attn_k_b, &layer.attn_v,
                         &layer.attn_v_b, &layer.attn_qkv, &layer.attn_qkv_b, &layer.attn_out_b}) {
    *part = Presence::kNone;
  }
  for (Presence* part : {&layer.attn_q, &layer.latent_q_a, &layer.latent_q_norm, &layer.latent_q_b,
                         &layer.latent_kv_a, &layer.latent_kv_norm, &layer.latent_k_b,
                         &layer.latent_v_b, &layer.latent_kv_b}) {
    *part = Presence::kRequired;  // required in layers with that part
  }
}

void RequireIndexer(LayerRoles<Presence>& layer) {
  for (Presence* part : {&layer.indexer_q, &layer.indexer_k, &layer.indexer_k_norm,
                         &layer.indexer_k_norm_b, &layer.indexer_weights}) {
    *part = Presence::kRequired;
  }
  // An indexer's queries are made of the latent of queries, and keys are not joined.
  layer.attn_q = layer.latent_kv_b = Presence::kNone;
}

void RequireStreams(LayerRoles<Presence>& layer) {
  for (Presence* part : {&layer.mixer_streams, &layer.mixer_streams_b, &layer.mixer_streams_scale,
                         &layer.ffn_streams, &layer.ffn_streams_b, &layer.ffn_streams_scale}) {
    *part = Presence::kRequired;
  }
}

void RequireKimiDelta(LayerRoles<Presence>& layer) {
  for (Presence* part :
       {&layer.attn_q, &layer.attn_k, &layer.attn_v, &layer.kimi_conv_q, &layer.kimi_conv_k,
        &layer.kimi_conv_v, &layer.kimi_decay_a, &layer.kimi_decay_b, &layer.kimi_gate_a,
        &layer.kimi_gate_b, &layer.state_dt_b, &layer.state_a_column, &layer.state_beta,
        &layer.state_norm}) {
    *part = Presence::kRequired;
  }
}

void RequireDeltaNet(LayerRoles<Presence>& layer) {
  for (Presence* part : {&layer.delta_qkv, &layer.delta_gate, &layer.state_conv, &layer.state_dt_b,
                         &layer.state_a, &layer.state_norm, &layer.state_out}) {
    *part = Presence::kRequired;
  }
}

}  // namespace moestro
