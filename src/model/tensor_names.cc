// SPDX-License-Identifier: MIT
#include "model/tensor_names.h"

#include <array>
#include <charconv>
#include <system_error>

#include "base/result.h"
#include "base/text.h"

namespace moestro {
namespace {

std::string_view Name(Matrix matrix) {
  constexpr std::array<std::string_view, kMatrices> kNames{"ffn_gate", "ffn_up", "ffn_down"};
  return kNames[static_cast<size_t>(matrix)];
}

// The size of an attention tensor's dimension; 0 for dimensions of other mixers.
int64_t AttentionSize(Dim dim, const AttentionSpec& a) {
  const bool is_per_head = a.form.qk_norm != QkNorm::kWholeVector;
  switch (dim) {
    case Dim::kHeads:
      return a.n_head;
    case Dim::kBuckets:
      return a.relative ? a.relative->n_buckets : 0;
    case Dim::kGates:
      return a.n_gate;
    case Dim::kQuery:
      return a.n_query_rows();
    case Dim::kKeys:
      return a.n_embd_k();
    case Dim::kValues:
      return a.n_embd_v();
    case Dim::kQkv:
      return int64_t{a.n_query_rows()} + a.n_embd_k() + a.n_embd_v();
    case Dim::kMixerOut:
      return a.n_embd_out();
    case Dim::kQueryNorm:
      return is_per_head ? a.head_dim_k : a.n_embd_q();
    case Dim::kKeyNorm:
      return is_per_head ? a.head_dim_k : a.n_embd_k();
    case Dim::kIndexerKey:
      return a.indexer ? a.indexer->head_dim : 0;
    case Dim::kIndexerQueries:
      return a.indexer ? int64_t{a.indexer->n_head} * a.indexer->head_dim : 0;
    default:
      return 0;
  }
}

int64_t LatentAttentionSize(Dim dim, const LatentAttentionSpec& a) {
  switch (dim) {
    case Dim::kHeads:
      return a.n_head;
    case Dim::kQuery:
      return a.n_query();
    case Dim::kQueryLatent:
      return a.n_query_latent;
    case Dim::kKeyLatent:
      return a.n_latent;
    case Dim::kLatentKey:
      return a.n_key();
    case Dim::kPlainQuery:
      return a.n_plain;
    case Dim::kHeadValues:
      return a.head_dim_v;
    case Dim::kGates:
      return a.has_gates ? a.n_head : 0;
    case Dim::kIndexerHeads:
      return a.indexer ? a.indexer->n_head : 0;
    case Dim::kIndexerKey:
    case Dim::kIndexerShares:
      return a.indexer ? a.indexer->head_dim : 0;
    case Dim::kIndexerPool:
      return a.indexer ? a.indexer->n_pool : 0;
    case Dim::kIndexerQueries:
      return a.indexer ? int64_t{a.indexer->n_head} * a.indexer->head_dim : 0;
    case Dim::kJoinedHeads:
      return int64_t{a.n_head} * (a.n_plain + a.head_dim_v);
    case Dim::kMixerOut:
      return a.n_embd_out();
    default:
      return 0;
  }
}

int64_t PooledAttentionSize(Dim dim, const PooledAttentionSpec& a) {
  const auto of_indexer = [&](uint32_t n) { return a.indexer ? int64_t{n} : 0; };
  const IndexerSpec indexer = a.indexer.value_or(IndexerSpec());
  switch (dim) {
    case Dim::kHeads:
      return a.n_head;
    case Dim::kQuery:
      return a.n_query();
    case Dim::kQueryLatent:
      return a.n_query_latent;
    case Dim::kKeyLatent:
      return a.head_dim;
    case Dim::kGroupHeads:
      return a.n_of_group();
    case Dim::kGroupOut:
      return a.n_out;
    case Dim::kGroups:
      return a.n_group;
    case Dim::kGroupsOut:
      return int64_t{a.n_group} * a.n_out;
    case Dim::kPoolShares:
      return int64_t{a.n_shares()} * a.head_dim;
    case Dim::kPool:
      return a.n_pool;
    case Dim::kIndexerHeads:
      return of_indexer(indexer.n_head);
    case Dim::kIndexerKey:
      return of_indexer(indexer.head_dim);
    case Dim::kIndexerQueries:
      return of_indexer(indexer.n_head) * indexer.head_dim;
    case Dim::kIndexerShares:
      return of_indexer(a.n_shares() * indexer.head_dim);
    case Dim::kIndexerPool:
      return of_indexer(a.n_pool);
    default:
      return 0;
  }
}

int64_t DeltaNetSize(Dim dim, const DeltaNetSpec& d) {
  switch (dim) {
    case Dim::kConvolved:
      return d.n_convolved();
    case Dim::kTaps:
      return d.n_taps;
    case Dim::kStateHeads:
      return d.n_head_v;
    case Dim::kDecays:
      return d.n_decays();
    case Dim::kGateInputs:
      return d.n_gate_inputs();
    case Dim::kQuery:
    case Dim::kKeys:
      return d.n_keys();
    case Dim::kValues:
      return d.n_values();
    case Dim::kStateHeads2:
      return int64_t{2} * d.n_head_v;
    case Dim::kStateHead:
      return d.head_dim;
    case Dim::kMixerOut:
      return d.n_values();
    case Dim::kProjected:
      return int64_t{d.n_convolved()} + d.n_values();
    default:
      return 0;
  }
}

int64_t ShortConvSize(Dim dim, const ShortConvSpec& s) {
  switch (dim) {
    case Dim::kConvolved:
      return s.n_channels;
    case Dim::kTaps:
      return s.n_taps;
    case Dim::kProjected:
      return int64_t{3} * s.n_channels;
    default:
      return 0;
  }
}

int64_t Mamba2Size(Dim dim, const Mamba2Spec& m) {
  switch (dim) {
    case Dim::kConvolved:
      return m.n_convolved();
    case Dim::kTaps:
      return m.n_taps;
    case Dim::kStateHeads:
    case Dim::kDecays:
      return m.n_head;
    case Dim::kMixerOut:
      return m.n_inner();
    case Dim::kProjected:
      return m.n_projected();
    case Dim::kStateGroup:
      return m.n_inner() / m.n_group;
    case Dim::kStateGroups:
      return m.n_group;
    default:
      return 0;
  }
}

}  // namespace

bool HasPart(const LayerSpec& layer, LayerModule part) {
  const LatentAttentionSpec* const latent = layer.latent_attention();
  const PooledAttentionSpec* const pooled = layer.pooled_attention();
  const bool is_kimi = layer.delta_net() != nullptr && layer.delta_net()->decays_values;
  switch (part) {
    case LayerModule::kEvery:
      return true;
    case LayerModule::kAttention:
      return layer.attention() != nullptr;
    case LayerModule::kAttended:
      return layer.attention() != nullptr || latent != nullptr || is_kimi ||
             layer.state() != nullptr;
    case LayerModule::kQueried:
      return layer.attention() != nullptr || is_kimi ||
             (latent != nullptr && latent->n_query_latent == 0);
    case LayerModule::kKeyed:
      return layer.attention() != nullptr || is_kimi;
    case LayerModule::kGated:
      return layer.attention() != nullptr || (latent != nullptr && latent->has_gates);
    case LayerModule::kKimiDelta:
      return is_kimi;
    case LayerModule::kGatesInTwo:
      return is_kimi && !layer.delta_net()->has_whole_gates;
    case LayerModule::kColumnDecay:
      return is_kimi || layer.mamba2() != nullptr;
    case LayerModule::kLatentAttention:
      return latent != nullptr;
    case LayerModule::kQueryLatent:
      return pooled != nullptr || (latent != nullptr && latent->n_query_latent > 0);
    case LayerModule::kSharedKey:
      return latent != nullptr || pooled != nullptr;
    case LayerModule::kSinks:
      return layer.attention() != nullptr || pooled != nullptr;
    case LayerModule::kPooled:
      return pooled != nullptr;
    case LayerModule::kPools:
      return pooled != nullptr && pooled->n_pool > 0;
    case LayerModule::kPoolIndexer:
      return pooled != nullptr && pooled->indexer;
    case LayerModule::kSplitHeads:
      return latent != nullptr && !latent->is_joined;
    case LayerModule::kIndexer:
      return latent != nullptr && latent->has_own_indexer();
    case LayerModule::kBlockIndexer:
      return layer.attention() != nullptr && layer.attention()->indexer;
    case LayerModule::kAnyIndexer:
      return HasPart(layer, LayerModule::kIndexer) || HasPart(layer, LayerModule::kBlockIndexer);
    case LayerModule::kNgrams:
      return layer.ngram_values > 0;
    case LayerModule::kIndexerQueries:
      return HasPart(layer, LayerModule::kIndexer) || HasPart(layer, LayerModule::kPoolIndexer);
    case LayerModule::kIndexerPools:
      return (latent != nullptr && latent->has_own_pools()) ||
             HasPart(layer, LayerModule::kPoolIndexer);
    case LayerModule::kJoinedHeads:
      return latent != nullptr && latent->is_joined;
    case LayerModule::kDeltaNet:
      return layer.delta_net() != nullptr;
    case LayerModule::kMamba2:
      return layer.mamba2() != nullptr;
    case LayerModule::kStateHeads:
      return layer.delta_net() != nullptr || layer.mamba2() != nullptr;
    case LayerModule::kShortConv:
      return layer.short_conv() != nullptr;
    case LayerModule::kExperts:
      return layer.feed_forward.has_experts();
    case LayerModule::kTokenExperts:
      return layer.feed_forward.has_token_experts;
    case LayerModule::kScoredExperts:
      return layer.feed_forward.has_experts() && !layer.feed_forward.has_token_experts;
    case LayerModule::kLatent:
      return layer.feed_forward.n_latent > 0;
    case LayerModule::kShared:
      return layer.feed_forward.n_ff_shared > 0;
    case LayerModule::kDense:
      return layer.feed_forward.n_ff_dense > 0;
    case LayerModule::kPredicting:
      return layer.predicts;
  }
  return false;
}

int64_t DimSize(Dim dim, const ModelSpec& spec, const LayerSpec* layer) {
  switch (dim) {
    case Dim::kOne:
      return 1;
    case Dim::kEmbd:
      return spec.n_embd;
    case Dim::kTwoEmbd:
      return int64_t{2} * spec.n_embd;
    case Dim::kExperts:
      return spec.router.n_expert;
    case Dim::kUsedExperts:
      return spec.router.n_used;
    case Dim::kVocab:
      return spec.n_vocab;
    case Dim::kHalfRotary:
      return spec.first_rotated() != nullptr ? spec.first_rotated()->rope->n_dims / 2 : 0;
    case Dim::kStreams:
      return spec.n_residual();
    case Dim::kStreamWeights:
      return spec.streams ? spec.streams->n_weights() : 0;
    case Dim::kStreamScales:
      return StreamsSpec::kScales;
    case Dim::kStreamNumber:
      return spec.streams ? spec.streams->n_streams : 0;
    case Dim::kStreamLowRank:
      return spec.streams ? spec.streams->n_low_rank : 0;
    case Dim::kNgramValues:
      return spec.ngrams ? spec.ngrams->n_values : 0;
    case Dim::kNgramRows:
      return spec.ngrams ? static_cast<int64_t>(spec.ngrams->n_rows) : 0;
    case Dim::kNgrams:
      return spec.ngrams ? spec.ngrams->n_embd() : 0;
    case Dim::kNgramTaps:
      return spec.ngrams ? spec.ngrams->n_taps : 0;
    default:
      break;
  }
  CHECK(layer != nullptr);
  switch (dim) {
    case Dim::kLatent:
      return layer->feed_forward.n_latent;
    case Dim::kExpertFf:
      return layer->feed_forward.n_ff_expert;
    case Dim::kSharedFf:
      return layer->feed_forward.n_ff_shared;
    case Dim::kDenseFf:
      return layer->feed_forward.n_ff_dense;
    default:
      break;
  }
  if (layer->attention() != nullptr) return AttentionSize(dim, *layer->attention());
  if (layer->latent_attention() != nullptr) {
    return LatentAttentionSize(dim, *layer->latent_attention());
  }
  if (layer->pooled_attention() != nullptr) {
    return PooledAttentionSize(dim, *layer->pooled_attention());
  }
  if (layer->delta_net() != nullptr) return DeltaNetSize(dim, *layer->delta_net());
  if (layer->short_conv() != nullptr) return ShortConvSize(dim, *layer->short_conv());
  if (layer->mamba2() != nullptr) return Mamba2Size(dim, *layer->mamba2());
  const bool is_of_test = dim == Dim::kMixerOut && layer->state() != nullptr;
  return is_of_test ? layer->state()->n_values : 0;
}

std::string LayerTensorName(uint32_t layer, std::string_view name) {
  return Format("blk.{}.{}", layer, name);
}

std::optional<uint32_t> LayerOfTensorName(std::string_view name) {
  constexpr std::string_view kPrefix = "blk.";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  uint32_t layer = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  const bool is_number = error == std::errc() && end != name.data() + name.size() && *end == '.';
  // "blk.02." is no name that LayerTensorName() gives.
  const bool is_padded = name.starts_with('0') && end != name.data() + 1;
  return is_number && !is_padded ? std::optional(layer) : std::nullopt;
}

bool IsOfVision(std::string_view name) { return name.starts_with("v.") || name.starts_with("mm."); }

std::string MergedExpertsName(uint32_t layer, Matrix matrix) {
  return Format("blk.{}.{}_exps.weight", layer, Name(matrix));
}

std::string LowExpertsName(uint32_t layer, Matrix matrix) {
  return Format("blk.{}.{}_exps_low.weight", layer, Name(matrix));
}

std::string FusedGateUpName(uint32_t layer) {
  return Format("blk.{}.ffn_gate_up_exps.weight", layer);
}

std::string SingleExpertName(uint32_t layer, Matrix matrix, uint32_t expert) {
  return Format("blk.{}.{}.{}.weight", layer, Name(matrix), expert);
}

}  // namespace moestro
