// SPDX-License-Identifier: MIT
#include <cmath>
#include <string_view>
#include <vector>

#include "model/read_mixers.h"

namespace moestro {
namespace {

constexpr std::string_view kRatios = "attention.compress_ratios";
// Positions of a pool that files have; pools of so few overlap and are chosen.
constexpr uint32_t kFew = 4;
constexpr uint32_t kMany = 128;

// Upper bounds that no real model comes near.
constexpr uint64_t kMostLatent = 16384;
constexpr uint64_t kMostLayers = 4096;

// Reads the number of positions of each evaluated layer's pools. An array may be longer than the
// model.
Result<std::vector<uint32_t>> ReadPools(const MetaKeys& keys, uint32_t n_evaluated) {
  const MetaValue* const array = keys.file().FindValue(keys.Full(kRatios));
  if (array == nullptr || !array->is_array || array->count < n_evaluated ||
      array->count > kMostLayers) {
    return Fail(Errc::kInvalidFile, "{}: '{}' has no number for each of {} layers", keys.path(),
                keys.Full(kRatios), n_evaluated);
  }
  std::vector<uint32_t> pools;
  for (uint32_t l = 0; l < n_evaluated; ++l) {
    const auto ratio = array->UintAt(l);
    if (ratio && (*ratio == 0 || *ratio == kFew || *ratio == kMany)) {
      pools.push_back(static_cast<uint32_t>(*ratio));
      continue;
    }
    return Fail(Errc::kUnsupported, "{}: {} in layer {}: pools of {} or {} positions are supported",
                keys.path(), keys.Full(kRatios), l, kFew, kMany);
  }
  return pools;
}

Result<IndexerSpec> ReadPoolIndexer(const MetaKeys& keys, uint32_t n_turned) {
  IndexerSpec spec;
  TRY(spec.n_head, keys.Count("attention.indexer.head_count", {1, MetaKeys::kMaxHeads}));
  TRY(spec.head_dim, keys.Count("attention.indexer.key_length", {n_turned, MetaKeys::kMaxHeadDim}));
  TRY(spec.top_k, keys.Count("attention.indexer.top_k", {1, MetaKeys::kMaxContext}));
  return spec;
}

// Reads the sizes that all layers share.
Result<PooledAttentionSpec> ReadSizes(const MetaKeys& keys, uint32_t n_all, uint32_t n_evaluated) {
  PooledAttentionSpec spec;
  TRY(const auto heads,
      keys.Counts("attention.head_count", {1, MetaKeys::kMaxHeads}, n_all, n_evaluated));
  spec.n_head = heads.front();
  TRY(spec.head_dim, keys.Count("attention.key_length", {2, MetaKeys::kMaxHeadDim}));
  TRY([[maybe_unused]] const uint32_t value_length,
      keys.Count("attention.value_length", {spec.head_dim, spec.head_dim}));
  TRY(spec.n_query_latent, keys.Count("attention.q_lora_rank", {1, kMostLatent}));
  TRY(spec.window, keys.Count("attention.sliding_window", {1, MetaKeys::kMaxContext}));
  TRY(spec.n_group, keys.Count("attention.output_group_count", {1, spec.n_head}));
  TRY(spec.n_out, keys.Count("attention.output_lora_rank", {1, kMostLatent}));
  if (spec.n_head % spec.n_group == 0) return spec;
  return Fail(Errc::kInvalidFile, "{}: {} heads cannot form {} groups ({})", keys.path(),
              spec.n_head, spec.n_group, keys.Full("attention.output_group_count"));
}

}  // namespace

Result<std::vector<PooledAttentionSpec>> ReadPooledAttention(const MetaKeys& keys,
                                                             RopePairs rope_pairs, uint32_t n_all,
                                                             uint32_t n_evaluated,
                                                             uint32_t n_ctx_train) {
  TRY(PooledAttentionSpec spec, ReadSizes(keys, n_all, n_evaluated));
  spec.rope_pairs = rope_pairs;
  TRY(const std::vector<uint32_t> pools, ReadPools(keys, n_evaluated));
  // Layers with pools are turned by another base, and by YaRN, whose magnitude is left
  // out. Those without are turned plainly.
  TRY(RopeSpec turned, ReadRope(keys, spec.head_dim, n_ctx_train));
  const RopeSpec plain = {.n_dims = turned.n_dims, .freq_base = turned.freq_base};
  TRY(turned.freq_base, ReadRopeBase(keys, "attention.compress_rope_freq_base", turned.freq_base));
  turned.attn_factor =
      turned.ext_factor != 0.0F ? 1.0F / (1.0F + 0.1F * std::log(1.0F / turned.freq_scale)) : 1.0F;
  std::optional<IndexerSpec> indexer;
  std::vector<PooledAttentionSpec> layers;
  for (const uint32_t n_pool : pools) {
    PooledAttentionSpec& layer = layers.emplace_back(spec);
    layer.n_pool = n_pool;
    layer.rope = n_pool > 0 ? turned : plain;
    layer.overlaps = n_pool == kFew;
    if (n_pool != kFew) continue;
    if (!indexer) {
      TRY(indexer, ReadPoolIndexer(keys, turned.n_dims));
    }
    layer.indexer = indexer;
  }
  return layers;
}

}  // namespace moestro
