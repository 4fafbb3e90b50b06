// SPDX-License-Identifier: MIT
#include "model/read_latent.h"

#include <cmath>
#include <string_view>

#include "model/read_rope.h"
#include "model/tensor_names.h"

namespace moestro {
namespace {

// An upper bound that no real model comes near.
constexpr uint64_t kMaxLatent = 16384;

float LogOf(const RopeSpec& rope) { return std::log(1.0F / rope.freq_scale); }

// Sets the scale of scores and the rotation's magnitude. YaRN makes rotated values larger; ggml
// does so by 1 + 0.1 ln(factor). With a multiplier the scale holds that factor for all values of a
// key, so it is taken back from the rotation; without one ggml's factor stays.
Status ReadLatentScale(const MetaKeys& keys, const LatentRules& rules, LatentAttentionSpec& spec) {
  const float unit = 1.0F / std::sqrt(static_cast<float>(spec.n_plain + spec.n_turned));
  spec.scale = unit;
  if (!spec.rope) return {};
  TRY(const auto key, keys.FindFactor("rope.scaling.yarn_log_multiplier"));
  // Converters write a tenth.
  const float multiplier = rules.has_multiplier ? key.value_or(0.0F) / 0.1F : 0.0F;
  const float usual = 1.0F + 0.1F * LogOf(*spec.rope);
  const bool is_yarn = spec.rope->ext_factor != 0.0F;
  const bool is_taken_back = is_yarn && multiplier != 0.0F;
  const float by_multiplier = 1.0F + 0.1F * multiplier * LogOf(*spec.rope);
  const float kept = !is_taken_back ? usual : rules.keeps_magnitude ? usual / by_multiplier : 1.0F;
  const float magnitude = spec.rope->attn_factor * kept * by_multiplier;
  spec.rope->attn_factor *= kept / usual;
  spec.scale = unit * magnitude * magnitude;
  if (std::isfinite(spec.scale) && std::isfinite(spec.rope->attn_factor)) return {};
  return Fail(Errc::kInvalidFile, "{}: {}* give scores no finite scale", keys.path(),
              keys.Full("rope.scaling."));
}

// Reads the widths of a key, before it is brought to the latent, and of a value. Older files store
// them under the keys of plain attention.
Status ReadLatentSizes(const MetaKeys& keys, LatentAttentionSpec& spec) {
  const auto named = [&](std::string_view key, std::string_view older) {
    return keys.Has(key) ? key : older;
  };
  const std::string_view key = named("attention.key_length_mla", "attention.key_length");
  const std::string_view value = named("attention.value_length_mla", "attention.value_length");
  TRY(const uint32_t length, keys.Count(key, {3, MetaKeys::kMaxHeadDim}));
  TRY(spec.head_dim_v, keys.Count(value, {1, MetaKeys::kMaxHeadDim}));
  TRY(spec.n_turned, keys.Count("rope.dimension_count", {2, MetaKeys::kMaxHeadDim}));
  if (spec.n_turned >= length || spec.n_turned % 2 != 0) {
    return Fail(Errc::kInvalidFile, "{}: {} is {}, expected an even number below {} ({})",
                keys.path(), keys.Full("rope.dimension_count"), spec.n_turned, length,
                keys.Full(key));
  }
  spec.n_plain = length - spec.n_turned;
  return {};
}

// The context of GLM-5.2, whose files may lack the key: the first layers and then each fourth have
// an indexer of their own.
constexpr uint64_t kContextOfSharing = 1048576;
bool SharesByHabit(uint32_t layer) { return layer > 2 && layer % 4 != 2; }

Status ReadIndexers(const MetaKeys& keys, const LatentRules& rules, uint32_t n_all,
                    uint32_t n_ctx_train, std::vector<LatentAttentionSpec>& layers) {
  const auto n_layer = static_cast<uint32_t>(layers.size());
  if (rules.indexers == Indexers::kNone) return {};
  IndexerSpec spec{.rope_pairs = rules.indexer_pairs};
  TRY(spec.n_head, keys.Count("attention.indexer.head_count", {1, MetaKeys::kMaxHeads}));
  TRY(spec.head_dim, keys.Count("attention.indexer.key_length", {1, MetaKeys::kMaxHeadDim}));
  TRY(spec.top_k, keys.Count("attention.indexer.top_k", {1, MetaKeys::kMaxContext}));
  if (spec.head_dim < layers.front().n_turned) {
    return Fail(Errc::kInvalidFile, "{}: {} is {}, expected at least {} ({})", keys.path(),
                keys.Full("attention.indexer.key_length"), spec.head_dim, layers.front().n_turned,
                keys.Full("rope.dimension_count"));
  }
  constexpr std::string_view kTypes = "attention.indexer.types";
  const bool may_share = rules.indexers == Indexers::kByTypes;
  std::vector<uint32_t> is_own(layers.size(), 1);
  if (may_share && keys.Has(kTypes)) {
    TRY(is_own, keys.Counts(kTypes, {0, 1}, n_all, n_layer));
  } else if (may_share && n_ctx_train >= kContextOfSharing) {
    for (uint32_t l = 0; l < layers.size(); ++l) is_own[l] = SharesByHabit(l) ? 0 : 1;
  }
  if (is_own.front() == 0) {
    return Fail(Errc::kInvalidFile, "{}: {}: no layer before the first has an indexer", keys.path(),
                keys.Full(kTypes));
  }
  for (uint32_t l = 0; l < layers.size(); ++l) {
    if (layers[l].n_query_latent == 0 || layers[l].is_joined) {
      return Fail(Errc::kInvalidFile, "{}: tensor '{}' is missing; convert the model again",
                  keys.path(),
                  LayerTensorName(l, layers[l].is_joined ? "attn_k_b.weight" : "attn_q_a.weight"));
    }
    layers[l].indexer = spec;
    layers[l].indexer->is_shared = is_own[l] == 0;
  }
  return {};
}

}  // namespace

Result<std::vector<LatentAttentionSpec>> ReadLatentAttention(const MetaKeys& keys,
                                                             const LatentRules& rules,
                                                             uint32_t n_all, uint32_t n_layer,
                                                             uint32_t n_ctx_train) {
  LatentAttentionSpec spec{.rope_pairs = rules.rope_pairs};
  TRY(spec.n_latent, keys.Count("attention.kv_lora_rank", {1, kMaxLatent}));
  TRY_STATUS(ReadLatentSizes(keys, spec));
  if (rules.rotates) {
    TRY(spec.rope, ReadRope(keys, spec.n_turned, n_ctx_train));
  }
  TRY_STATUS(ReadLatentScale(keys, rules, spec));
  TRY(const auto heads,
      keys.Counts("attention.head_count", {1, MetaKeys::kMaxHeads}, n_all, n_layer));
  TRY(const auto query_latent, keys.FindCount("attention.q_lora_rank", {0, kMaxLatent}));
  std::vector<LatentAttentionSpec> layers;
  for (uint32_t l = 0; l < n_layer; ++l) {
    LatentAttentionSpec& layer = layers.emplace_back(spec);
    const auto has = [&](std::string_view name) {
      return keys.file().Find(LayerTensorName(l, name)) != nullptr;
    };
    layer.n_head = heads[l];
    layer.is_joined = !has("attn_k_b.weight") && has("attn_kv_b.weight");
    if (!has("attn_q_a.weight")) continue;
    layer.n_query_latent = query_latent.value_or(0);
    if (layer.n_query_latent > 0) continue;
    return Fail(Errc::kInvalidFile, "{}: metadata '{}' is missing or 0; convert the model again",
                keys.path(), keys.Full("attention.q_lora_rank"));
  }
  TRY_STATUS(ReadIndexers(keys, rules, n_all, n_ctx_train, layers));
  return layers;
}

}  // namespace moestro
