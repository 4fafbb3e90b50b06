// SPDX-License-Identifier: MIT
#include "model/read_mixers.h"

#include <cmath>
#include <string>
#include <string_view>

#include "base/terminal.h"
#include "model/read_blocks.h"
#include "model/tensor_names.h"

namespace moestro {
namespace {

Status ReadRopeScaling(const MetaKeys& keys, RopeSpec& rope) {
  TRY(const auto type, keys.file().FindString(keys.Full("rope.scaling.type")));
  const std::string scaling = type.value_or("linear");
  if (scaling != "none" && scaling != "linear" && scaling != "yarn" && scaling != "longrope") {
    return Fail(Errc::kUnsupported, "{}: {} is '{}'; supported are none, linear, yarn, longrope",
                keys.path(), keys.Full("rope.scaling.type"), Printable(scaling));
  }
  TRY(auto factor, keys.FindFactor("rope.scaling.factor"));
  if (!factor) {
    TRY(factor, keys.FindFactor("rope.scale_linear"));  // the name old converters wrote
  }
  if (factor && *factor > 0.0F && scaling != "none") rope.freq_scale = 1.0F / *factor;
  if (!std::isfinite(rope.freq_scale)) {
    return Fail(Errc::kInvalidFile, "{}: {} is {}, too small", keys.path(),
                keys.Full("rope.scaling.factor"), *factor);
  }
  if (scaling == "yarn") rope.ext_factor = 1.0F;
  // A further factor: ggml's YaRN multiplies the magnitude by 1 + 0.1 ln(factor) in any case.
  TRY(const auto attn_factor, keys.FindFactor("rope.scaling.attn_factor"));
  rope.attn_factor = attn_factor.value_or(1.0F);
  return {};
}

}  // namespace

Result<float> ReadRopeBase(const MetaKeys& keys, std::string_view key, float fallback) {
  TRY(const auto base, keys.FindFactor(key));
  if (base.value_or(fallback) > 0.0F) return base.value_or(fallback);
  return Fail(Errc::kInvalidFile, "{}: {} is {}, expected more than 0", keys.path(), keys.Full(key),
              *base);
}

Result<RopeSpec> ReadRope(const MetaKeys& keys, uint32_t head_dim, uint32_t n_ctx_train) {
  RopeSpec rope;
  TRY(rope.n_dims, keys.CountOr("rope.dimension_count", {2, head_dim}, head_dim));
  if (rope.n_dims % 2 != 0) {
    return Fail(Errc::kInvalidFile, "{}: {} is {}, expected an even number", keys.path(),
                keys.Full("rope.dimension_count"), rope.n_dims);
  }
  TRY(rope.freq_base, ReadRopeBase(keys, "rope.freq_base", 10000.0F));
  TRY(rope.original_context, keys.CountOr("rope.scaling.original_context_length",
                                          {1, MetaKeys::kMaxContext}, n_ctx_train));
  TRY_STATUS(ReadRopeScaling(keys, rope));
  return rope;
}

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
  if (rules.scales_scores) spec.scale = unit * magnitude * magnitude;
  if (std::isfinite(spec.scale) && std::isfinite(spec.rope->attn_factor)) return {};
  return Fail(Errc::kInvalidFile, "{}: {}* give scores no finite scale", keys.path(),
              keys.Full("rope.scaling."));
}

// Reads the widths of a key, before it is brought to the latent, and of a value. Older files store
// them under the keys of plain attention.
Status ReadLatentSizes(const MetaKeys& keys, const LatentRules& rules, LatentAttentionSpec& spec) {
  const auto named = [&](std::string_view key, std::string_view older) {
    return keys.Has(key) ? key : older;
  };
  const std::string_view key = named("attention.key_length_mla", "attention.key_length");
  const std::string_view value = named("attention.value_length_mla", "attention.value_length");
  TRY(const uint32_t length, keys.Count(key, {3, MetaKeys::kMaxHeadDim}));
  TRY(spec.head_dim_v, keys.Count(value, {1, MetaKeys::kMaxHeadDim}));
  if (!rules.has_turned) {
    TRY([[maybe_unused]] const auto none, keys.FindCount("rope.dimension_count", {0, 0}));
    spec.n_plain = length;
    return {};
  }
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

// Reads pools of positions that an indexer chooses.
Status ReadPools(const MetaKeys& keys, IndexerSpec& spec) {
  constexpr uint32_t kMostPool = 64;  // no real model comes near
  TRY(spec.n_pool, keys.Count("attention.indexer.kpool", {2, kMostPool}));
  if (spec.top_k % spec.n_pool != 0) {
    return Fail(Errc::kInvalidFile, "{}: {} is {}, no multiple of {} ({})", keys.path(),
                keys.Full("attention.indexer.top_k"), spec.top_k, spec.n_pool,
                keys.Full("attention.indexer.kpool"));
  }
  constexpr std::string_view kTail = "attention.indexer.kpool_select_tail";
  TRY(const auto has_tail, keys.file().FindBool(keys.Full(kTail)));
  if (!has_tail.value_or(true)) {
    return Fail(Errc::kUnsupported,
                "{}: {} is false: rows that do not attend to their own position are not supported",
                keys.path(), keys.Full(kTail));
  }
  TRY(const auto eps, keys.FindFactor("attention.layer_norm_epsilon"));
  spec.eps = eps.value_or(spec.eps);
  return {};
}

Result<IndexerSpec> ReadIndexer(const MetaKeys& keys, const LatentRules& rules, uint32_t n_turned) {
  TRY(IndexerSpec spec, ReadIndexerSizes(keys));
  spec.rope_pairs = rules.indexer_pairs;
  if (rules.indexers == Indexers::kPools) TRY_STATUS(ReadPools(keys, spec));
  TRY_STATUS(CheckIndexerKey(keys, spec, n_turned));
  return spec;
}

// Gives indexers to the layers that have latent attention, of which `layers` has all.
Status ReadIndexers(const MetaKeys& keys, const LatentRules& rules, const LatentLayers& which,
                    uint32_t n_ctx_train, std::vector<LatentAttentionSpec>& layers) {
  if (rules.indexers == Indexers::kNone) return {};
  TRY(const IndexerSpec spec, ReadIndexer(keys, rules, layers.front().n_turned));
  constexpr std::string_view kTypes = "attention.indexer.types";
  const bool may_share = rules.indexers != Indexers::kInEvery;
  std::vector<uint32_t> is_own(layers.size(), 1);
  if (may_share && keys.Has(kTypes)) {
    TRY(is_own, keys.Counts(kTypes, {0, 1}, which.n_all, which.n_layer()));
  } else if (rules.indexers == Indexers::kByTypes && n_ctx_train >= kContextOfSharing) {
    for (uint32_t l = 0; l < layers.size(); ++l) is_own[l] = SharesByHabit(l) ? 0 : 1;
  }
  bool has_some = false;
  for (uint32_t l = 0; l < layers.size(); ++l) {
    if (!which.are_there[l]) continue;
    if (is_own[l] == 0 && !has_some) {
      return Fail(Errc::kInvalidFile, "{}: {}: no layer before the first has an indexer",
                  keys.path(), keys.Full(kTypes));
    }
    has_some = true;
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
                                                             const LatentLayers& which,
                                                             uint32_t n_ctx_train) {
  LatentAttentionSpec spec{.rope_pairs = rules.rope_pairs, .has_gates = rules.has_gates};
  TRY(spec.n_latent, keys.Count("attention.kv_lora_rank", {1, kMaxLatent}));
  TRY_STATUS(ReadLatentSizes(keys, rules, spec));
  if (rules.rotates) {
    TRY(spec.rope, ReadRope(keys, spec.n_turned, n_ctx_train));
  }
  TRY_STATUS(ReadLatentScale(keys, rules, spec));
  TRY(const auto heads,
      keys.Counts("attention.head_count", {1, MetaKeys::kMaxHeads}, which.n_all, which.n_layer()));
  TRY(const auto query_latent, keys.FindCount("attention.q_lora_rank", {0, kMaxLatent}));
  std::vector<LatentAttentionSpec> layers;
  for (uint32_t l = 0; l < which.n_layer(); ++l) {
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
  TRY_STATUS(ReadIndexers(keys, rules, which, n_ctx_train, layers));
  return layers;
}

namespace {

// Upper bounds that no real model comes near. With them a state's values fit in 32 bits.
constexpr uint64_t kMaxStateHeads = 1024;
constexpr uint64_t kMaxStateDim = 1024;
constexpr uint64_t kMaxStateValues = uint64_t{1} << 30;
constexpr uint64_t kMaxInterval = 4096;

// Sizes for which compute/state_kernel.h has kernels.
constexpr uint32_t kHeadMultiple = 32;
constexpr uint32_t kChannelMultiple = 16;
constexpr uint32_t kLeastTaps = 2;
constexpr uint32_t kMostTaps = 4;
constexpr MetaKeys::Range kRealTaps = {.min = 1, .max = 4096};  // no real model comes near

Status CheckMultiple(const MetaKeys& keys, std::string_view key, uint32_t value,
                     uint32_t multiple) {
  if (value % multiple == 0) return {};
  return Fail(Errc::kUnsupported, "{}: {} gives {}, no multiple of {}", keys.path(), keys.Full(key),
              value, multiple);
}

Status CheckStateSize(const MetaKeys& keys, uint64_t values) {
  if (values <= kMaxStateValues) return {};
  return Fail(Errc::kUnsupported, "{}: a state of {} values in one layer ({}) is too large",
              keys.path(), values, keys.Full("ssm.state_size"));
}

Result<uint32_t> ReadTaps(const MetaKeys& keys, std::string_view key) {
  TRY(const uint32_t taps, keys.Count(key, kRealTaps));
  if (taps >= kLeastTaps && taps <= kMostTaps) return taps;
  return Fail(Errc::kUnsupported,
              "{}: {} is {}: convolutions over {} to {} positions are supported", keys.path(),
              keys.Full(key), taps, kLeastTaps, kMostTaps);
}

}  // namespace

Result<std::vector<bool>> FindStateLayers(const MetaKeys& keys, uint32_t n_all,
                                          uint32_t n_evaluated) {
  constexpr std::string_view kKey = "attention.recurrent_layers";
  std::vector<bool> has_state;
  if (keys.IsArray(kKey)) {
    TRY(const auto choices, keys.Counts(kKey, {0, 1}, n_all, n_evaluated));
    has_state.assign(choices.begin(), choices.begin() + n_evaluated);
    return has_state;
  }
  TRY(const uint32_t interval, keys.CountOr("full_attention_interval", {1, kMaxInterval}, 4));
  for (uint32_t l = 0; l < n_evaluated; ++l) has_state.push_back((l + 1) % interval != 0);
  return has_state;
}

Result<DeltaNetSpec> ReadDeltaNet(const MetaKeys& keys, const StateRules& rules) {
  DeltaNetSpec delta{.sharing = rules.sharing, .has_sigmoid_gates = rules.has_sigmoid_gates};
  TRY(delta.n_head_k, keys.Count("ssm.group_count", {1, kMaxStateHeads}));
  TRY(delta.n_head_v, keys.Count("ssm.time_step_rank", {1, kMaxStateHeads}));
  TRY(delta.head_dim, keys.Count("ssm.state_size", {1, kMaxStateDim}));
  TRY(delta.n_taps, ReadTaps(keys, "ssm.conv_kernel"));
  TRY(const uint32_t inner, keys.Count("ssm.inner_size", {1, kMaxStateHeads * kMaxStateDim}));
  if (delta.n_head_v % delta.n_head_k != 0) {
    return Fail(Errc::kInvalidFile, "{}: {} value heads cannot share {} key heads ({})",
                keys.path(), delta.n_head_v, delta.n_head_k, keys.Full("ssm.group_count"));
  }
  if (inner != uint64_t{delta.n_head_v} * delta.head_dim) {
    return Fail(Errc::kInvalidFile, "{}: {} is {}, and {} heads of {} make {}", keys.path(),
                keys.Full("ssm.inner_size"), inner, delta.n_head_v, delta.head_dim,
                uint64_t{delta.n_head_v} * delta.head_dim);
  }
  TRY_STATUS(CheckMultiple(keys, "ssm.state_size", delta.head_dim, kHeadMultiple));
  TRY_STATUS(CheckStateSize(keys, uint64_t{delta.n_head_v} * delta.head_dim * delta.head_dim));
  return delta;
}

namespace {

// The logarithm of the smallest decay; 0: decays have no bound.
Result<float> ReadDecayBound(const MetaKeys& keys, bool may_lack) {
  TRY(const auto is_bounded, keys.file().FindBool(keys.Full("kda.safe_gate")));
  if (!is_bounded.value_or(true)) {
    return Fail(Errc::kUnsupported, "{}: {} is false: decays without a bound are not supported",
                keys.path(), keys.Full("kda.safe_gate"));
  }
  constexpr std::string_view kKey = "kda.gate_lower_bound";
  TRY(const auto bound, keys.file().FindFloat(keys.Full(kKey)));
  if (!bound && may_lack) return 0.0F;
  if (!bound) {
    return Fail(Errc::kInvalidFile, "{}: metadata '{}' is missing; convert the model again",
                keys.path(), keys.Full(kKey));
  }
  const auto value = static_cast<float>(*bound);
  if (std::isfinite(value) && value < 0.0F) return value;
  return Fail(Errc::kInvalidFile, "{}: {} is {}, expected a number below 0", keys.path(),
              keys.Full(kKey), *bound);
}

}  // namespace

Result<DeltaNetSpec> ReadKimiDelta(const MetaKeys& keys, const StateRules& rules, uint32_t n_all) {
  DeltaNetSpec delta{
      .decays_values = true, .has_whole_gates = rules.has_whole_gates, .key_eps = rules.key_eps};
  if (rules.has_decay_bound) {
    TRY(delta.decay_bound, ReadDecayBound(keys, rules.has_negative_rates));
  }
  delta.has_negative_rates = rules.has_negative_rates && delta.decay_bound < 0.0F;
  TRY(const auto heads, keys.Counts("attention.head_count", {1, kMaxStateHeads}, n_all, n_all));
  TRY(delta.head_dim, keys.Count("kda.head_dim", {1, kMaxStateDim}));
  TRY(delta.n_taps, ReadTaps(keys, "ssm.conv_kernel"));
  delta.n_head_k = delta.n_head_v = heads.front();
  TRY_STATUS(CheckMultiple(keys, "kda.head_dim", delta.head_dim, kHeadMultiple));
  TRY_STATUS(CheckStateSize(keys, uint64_t{delta.n_head_v} * delta.head_dim * delta.head_dim));
  return delta;
}

Result<Mamba2Spec> ReadMamba2(const MetaKeys& keys) {
  Mamba2Spec mamba;
  TRY(mamba.n_head, keys.Count("ssm.time_step_rank", {1, kMaxStateHeads}));
  TRY(mamba.n_group, keys.Count("ssm.group_count", {1, mamba.n_head}));
  TRY(mamba.n_state, keys.Count("ssm.state_size", {1, kMaxStateDim}));
  TRY(mamba.n_taps, ReadTaps(keys, "ssm.conv_kernel"));
  TRY(const uint32_t inner, keys.Count("ssm.inner_size", {1, kMaxStateHeads * kMaxStateDim}));
  if (inner % mamba.n_head != 0) {
    return Fail(Errc::kInvalidFile, "{}: {} is {}, which {} heads ({}) cannot share", keys.path(),
                keys.Full("ssm.inner_size"), inner, mamba.n_head, keys.Full("ssm.time_step_rank"));
  }
  mamba.head_dim = inner / mamba.n_head;
  if (mamba.n_head % mamba.n_group != 0) {
    return Fail(Errc::kInvalidFile, "{}: {} heads cannot form {} groups ({})", keys.path(),
                mamba.n_head, mamba.n_group, keys.Full("ssm.group_count"));
  }
  TRY_STATUS(CheckMultiple(keys, "ssm.inner_size", mamba.head_dim, kHeadMultiple));
  TRY_STATUS(CheckMultiple(keys, "ssm.state_size", mamba.n_state, kChannelMultiple));
  TRY_STATUS(CheckStateSize(keys, uint64_t{inner} * mamba.n_state));
  return mamba;
}

Result<ShortConvSpec> ReadShortConv(const MetaKeys& keys, uint32_t n_embd) {
  ShortConvSpec conv{.n_channels = n_embd};
  TRY(conv.n_taps, ReadTaps(keys, "shortconv.l_cache"));
  TRY_STATUS(CheckMultiple(keys, "embedding_length", n_embd, kChannelMultiple));
  return conv;
}

}  // namespace moestro
