// SPDX-License-Identifier: MIT
#include "offline/synth/synth_family.h"

#include <optional>

#include "model/families/families.h"

namespace moestro {

const Family* FindSynthFamily(std::string_view arch) { return FindFamily(Families(), arch); }

namespace {

MixerSpec StateOf(const SynthShape& shape, const StateRules& rules) {
  if (rules.mixer == StateMixer::kMamba2) {
    return Mamba2Spec{.n_head = shape.state_heads,
                      .head_dim = shape.state_dim,
                      .n_group = shape.state_key_heads,
                      .n_state = shape.state_size,
                      .n_taps = shape.taps};
  }
  if (rules.mixer == StateMixer::kShortConv) {
    return ShortConvSpec{.n_channels = shape.embd, .n_taps = shape.taps};
  }
  if (rules.mixer == StateMixer::kKimiDelta) {
    return DeltaNetSpec{.n_head_k = shape.heads,
                        .n_head_v = shape.heads,
                        .head_dim = shape.state_dim,
                        .n_taps = shape.taps,
                        .decays_values = true};
  }
  return DeltaNetSpec{.n_head_k = shape.state_key_heads,
                      .n_head_v = shape.state_heads,
                      .head_dim = shape.state_dim,
                      .n_taps = shape.taps,
                      .sharing = rules.sharing};
}

LatentAttentionSpec LatentOf(const SynthShape& shape, uint32_t layer) {
  std::optional<IndexerSpec> indexer;
  if (shape.indexer_heads > 0) {
    indexer = {.n_head = shape.indexer_heads,
               .head_dim = shape.indexer_dim,
               .top_k = shape.top_k,
               .is_shared = shape.shares_indexer(layer)};
  }
  return {.n_head = shape.heads,
          .n_latent = shape.kv_latent,
          .n_turned = shape.rotated,
          .n_plain = shape.head_dim - shape.rotated,
          .head_dim_v = shape.value_dim,
          .n_query_latent = shape.query_latent,
          .is_joined = shape.is_joined,
          .indexer = indexer};
}

// A layer with a window has heads of its own; one without has keys for values.
AttentionSpec OwnHeads(const SynthShape& shape, AttentionSpec attention, uint32_t layer) {
  if (!shape.has_window(layer)) {
    attention.values_are_keys = true;
    return attention;
  }
  attention.n_head_kv = shape.window_kv_heads;
  attention.head_dim_k = attention.head_dim_v = shape.window_head_dim;
  attention.has_rope_factors = false;
  return attention;
}

// A layer of the encoder, of the decoder's attention to the target, or to the source.
LayerSpec EncoderLayer(const SynthShape& shape, uint32_t layer) {
  AttentionSpec attention{.n_head = shape.heads,
                          .n_head_kv = shape.heads,
                          .head_dim_k = shape.head_dim,
                          .head_dim_v = shape.head_dim,
                          .reach = AttentionReach::kAcross};
  const bool is_source = layer < shape.encoder_layers;
  if (is_source || shape.is_target_alone(layer)) {
    attention.reach = is_source ? AttentionReach::kSource : AttentionReach::kPast;
    attention.relative =
        RelativeBias{.n_buckets = kSynthBuckets,
                     .max_distance = kSynthDistance,
                     .is_two_sided = is_source,
                     .layer = static_cast<uint16_t>(is_source ? 0 : shape.encoder_layers)};
  }
  LayerSpec spec{.mixer = attention};
  if (shape.has_experts(layer)) {
    spec.feed_forward.n_ff_expert = shape.ff;
  } else if (!shape.is_target_alone(layer)) {
    spec.feed_forward.n_ff_dense = shape.dense_ff;
  }
  return spec;
}

}  // namespace

ModelSpec SpecOf(const SynthShape& shape) {
  const Family& family = *FindSynthFamily(shape.arch);
  ModelSpec spec;
  spec.n_embd = shape.embd;
  spec.n_vocab = shape.vocab;
  spec.experts = family.experts;
  spec.router = {.n_expert = shape.experts, .n_used = shape.used};
  for (uint32_t l = 0; l < shape.layers && family.has_encoder; ++l) {
    spec.layers.push_back(EncoderLayer(shape, l));
  }
  if (family.has_encoder) {
    spec.encoder = EncoderSpec{.n_layer = shape.encoder_layers};
    return spec;
  }
  const OutputGate gate = family.attention.output_gate;
  const auto n_values = static_cast<uint32_t>(shape.q_width());
  const AttentionSpec attention{.form = family.attention,
                                .n_head = shape.heads,
                                .n_head_kv = shape.kv_heads,
                                .head_dim_k = shape.head_dim,
                                .head_dim_v = shape.head_dim,
                                .rope = RopeSpec{.n_dims = shape.rope_dim()},
                                .n_gate = gate == OutputGate::kSigmoid    ? n_values
                                          : gate == OutputGate::kSoftplus ? shape.heads
                                                                          : 0};
  for (uint32_t l = 0; l < shape.layers; ++l) {
    LayerSpec& layer = spec.layers.emplace_back();
    layer.mixer = NoMixerSpec();
    if (shape.has_attention(l)) layer.mixer = attention;
    if (family.windows.has_own_heads) layer.mixer = OwnHeads(shape, attention, l);
    if (family.latent.is_used) layer.mixer = LatentOf(shape, l);
    if (shape.has_state(l)) layer.mixer = StateOf(shape, family.states);
    if (shape.has_experts(l)) {
      layer.feed_forward = {.n_ff_expert = shape.ff,
                            .n_ff_shared = shape.shared_ff,
                            .n_ff_dense = family.has_dense_beside ? shape.dense_ff : 0,
                            .n_latent = shape.latent};
    } else if (shape.pattern.empty()) {
      layer.feed_forward = {.n_ff_dense = shape.dense_ff};
    }
  }
  return spec;
}

bool IsWritten(Presence presence) {
  return presence == Presence::kUsual || presence == Presence::kRequired;
}

}  // namespace moestro
