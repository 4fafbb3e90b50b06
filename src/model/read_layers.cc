// SPDX-License-Identifier: MIT
#include "model/read_layers.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "base/terminal.h"
#include "model/read_mixers.h"
#include "model/read_spec.h"
#include "model/tensor_names.h"

namespace moestro {
namespace {

// Upper bounds that no real model comes near.
constexpr uint64_t kMaxLayers = 4096;
constexpr uint64_t kMaxFeedForward = MetaKeys::kMaxFeedForward;

// Numbers of layers: in the file; those that every row goes through; these and one that predicts
// further tokens, where it is asked for.
struct Blocks {
  uint32_t all = 0;
  uint32_t main = 0;
  uint32_t evaluated = 0;
};

// Adds the first layer that predicts further tokens to those that are evaluated.
Status AddPredicting(const MetaKeys& keys, const Family& family, Blocks& blocks) {
  if (blocks.main == blocks.all) {
    return Fail(Errc::kUnsupported, "{}: no layer of the file predicts further tokens ({})",
                keys.path(), keys.Full("nextn_predict_layers"));
  }
  if (!family.can_predict) {
    return Fail(Errc::kUnsupported,
                "{}: layers that predict further tokens are passed over in architecture {}",
                keys.path(), family.name);
  }
  const std::string name = LayerTensorName(blocks.main, "nextn.eh_proj.weight");
  if (keys.file().Find(name) == nullptr) {
    return Fail(Errc::kInvalidFile,
                "{}: tensor '{}' is missing: the layer that predicts further tokens was left out "
                "of the file",
                keys.path(), name);
  }
  ++blocks.evaluated;
  return {};
}

Result<Blocks> ReadBlocks(const MetaKeys& keys, const Family& family) {
  Blocks blocks;
  TRY(blocks.all, keys.Count("block_count", {1, kMaxLayers}));
  blocks.main = blocks.evaluated = blocks.all;
  TRY(const auto next, keys.file().FindUniformUint(keys.Full("nextn_predict_layers")));
  if (next.value_or(0) == 0) return blocks;
  if (!family.has_next_token_layers) {
    return RefuseKey(keys, "nextn_predict_layers", *next, "layers that predict further tokens");
  }
  if (*next >= blocks.all) {
    return Fail(Errc::kInvalidFile, "{}: {} is {} of {} layers", keys.path(),
                keys.Full("nextn_predict_layers"), *next, blocks.all);
  }
  blocks.main -= static_cast<uint32_t>(*next);
  blocks.evaluated = blocks.main;
  TRY_STATUS(CheckNextTokenLayers(keys.file(), {.first = blocks.main, .end = blocks.all},
                                  keys.Full("nextn_predict_layers")));
  return blocks;
}

Status CheckHeads(const MetaKeys& keys, const AttentionSpec& attention) {
  if (attention.n_head_kv > attention.n_head) {
    return Fail(Errc::kInvalidFile, "{}: {} is {}, expected 1 to {}", keys.path(),
                keys.Full("attention.head_count_kv"), attention.n_head_kv, attention.n_head);
  }
  if (attention.n_head % attention.n_head_kv == 0) return {};
  return Fail(Errc::kInvalidFile, "{}: {} heads cannot share {} key-value heads ({})", keys.path(),
              attention.n_head, attention.n_head_kv, keys.Full("attention.head_count_kv"));
}

Status ReadHeadSizes(const MetaKeys& keys, const Family& family, uint32_t n_embd,
                     AttentionSpec& attention) {
  TRY(const auto key_length, keys.FindCount("attention.key_length", {1, MetaKeys::kMaxHeadDim}));
  if (!key_length && n_embd % attention.n_head != 0) {
    return Fail(Errc::kInvalidFile,
                "{}: embedding length {} is not divisible by {} heads and '{}' is missing",
                keys.path(), n_embd, attention.n_head, keys.Full("attention.key_length"));
  }
  const uint32_t default_dim = n_embd / attention.n_head;
  TRY(attention.head_dim_k,
      keys.CountOr("attention.key_length", {1, MetaKeys::kMaxHeadDim}, default_dim));
  TRY(attention.head_dim_v,
      keys.CountOr("attention.value_length", {1, MetaKeys::kMaxHeadDim}, default_dim));
  if (attention.head_dim_k != attention.head_dim_v && !family.has_value_heads_of_own) {
    return Fail(Errc::kUnsupported, "{}: key length {} and value length {} differ ({})",
                keys.path(), attention.head_dim_k, attention.head_dim_v,
                keys.Full("attention.value_length"));
  }
  return {};
}

// Attention of each layer without rotation and window. Layers without key-value heads, where
// families have a state, get n_head_kv 0.
Result<std::vector<AttentionSpec>> ReadAttention(const MetaKeys& keys, const Family& family,
                                                 const Blocks& blocks, uint32_t n_embd) {
  TRY(const auto heads,
      keys.Counts("attention.head_count", {1, MetaKeys::kMaxHeads}, blocks.all, blocks.main));
  std::vector<uint32_t> kv_heads = heads;
  const bool may_lack = family.states.mixer != StateMixer::kNone &&
                        family.states.layers == StateLayers::kWithoutKvHeads;
  if (keys.Has("attention.head_count_kv")) {
    TRY(kv_heads, keys.Counts("attention.head_count_kv", {may_lack ? 0U : 1U, MetaKeys::kMaxHeads},
                              blocks.all, blocks.main));
  }
  std::vector<AttentionSpec> layers;
  for (uint32_t l = 0; l < blocks.evaluated; ++l) {
    AttentionSpec attention{.form = family.attention, .n_head = heads[l], .n_head_kv = kv_heads[l]};
    if (family.latent.is_used || family.has_pooled_attention) {  // they have sizes of their own
      layers.push_back(attention);
      continue;
    }
    if (kv_heads[l] > 0) TRY_STATUS(CheckHeads(keys, attention));
    TRY_STATUS(ReadHeadSizes(keys, family, n_embd, attention));
    layers.push_back(attention);
  }
  return layers;
}

Status ReadNormEpsilon(const MetaKeys& keys, const Family& family, ModelSpec& spec) {
  TRY(auto eps, keys.FindFactor("attention.layer_norm_rms_epsilon"));
  if (!eps && family.has_other_epsilon_name) {
    TRY(eps, keys.FindFactor("attention.layer_norm_epsilon"));
  }
  if (!eps) {
    return Fail(Errc::kInvalidFile, "{}: metadata '{}' is missing; convert the model again",
                keys.path(), keys.Full("attention.layer_norm_rms_epsilon"));
  }
  spec.rms_eps = *eps;
  return {};
}

// Finds the layers that have a window.
Result<std::vector<bool>> ReadWindowPattern(const MetaKeys& keys, const WindowRules& rules,
                                            const Blocks& blocks) {
  constexpr std::string_view kKey = "attention.sliding_window_pattern";
  std::vector<bool> has_window;
  if (keys.IsArray(kKey)) {
    TRY(const auto choices, keys.Counts(kKey, {0, 1}, blocks.all, blocks.main));
    has_window.assign(choices.begin(), choices.begin() + blocks.evaluated);
    return has_window;
  }
  TRY(const uint32_t period, keys.CountOr(kKey, {0, kMaxLayers}, rules.period));
  for (uint32_t l = 0; l < blocks.evaluated; ++l) {
    const bool sees_all =
        period > 0 && (rules.is_first ? l % period == 0 : l % period + 1 == period);
    has_window.push_back(!sees_all);
  }
  return has_window;
}

Status ReadHeadsInWindow(const MetaKeys& keys, AttentionSpec& attention) {
  TRY(attention.head_dim_k, keys.Count("attention.key_length_swa", {2, MetaKeys::kMaxHeadDim}));
  TRY(attention.head_dim_v, keys.Count("attention.value_length_swa", {2, MetaKeys::kMaxHeadDim}));
  if (attention.head_dim_k == attention.head_dim_v) return {};
  return Fail(Errc::kUnsupported, "{}: key length {} and value length {} differ ({})", keys.path(),
              attention.head_dim_k, attention.head_dim_v, keys.Full("attention.value_length_swa"));
}

// The rotation of a layer with a window, and the layer's heads if they differ.
Status RotateInWindow(const MetaKeys& keys, const WindowRules& rules, uint32_t n_ctx_train,
                      AttentionSpec& attention) {
  RopeSpec& rope = *attention.rope;
  if (rules.has_own_heads) TRY_STATUS(ReadHeadsInWindow(keys, attention));
  attention.has_rope_factors = !rules.rotates_plainly;
  if (rules.rotates_plainly) {
    const uint32_t n_dims = std::min(rope.n_dims, attention.head_dim_k);
    const float factor = rules.keeps_factor ? rope.attn_factor : 1.0F;
    rope = {.freq_base = rope.freq_base, .attn_factor = factor, .original_context = n_ctx_train};
    TRY(rope.n_dims, keys.CountOr("rope.dimension_count_swa", {2, attention.head_dim_k}, n_dims));
    if (rope.n_dims % 2 != 0) {
      return Fail(Errc::kInvalidFile, "{}: {} is {}, expected an even number", keys.path(),
                  keys.Full("rope.dimension_count_swa"), rope.n_dims);
    }
  }
  const float base = rules.base > 0.0F ? rules.base : rope.freq_base;
  TRY(rope.freq_base, ReadRopeBase(keys, "rope.freq_base_swa", base));
  return {};
}

Status ReadWindows(const MetaKeys& keys, const WindowRules& rules, const Blocks& blocks,
                   uint32_t n_ctx_train, std::vector<AttentionSpec>& layers) {
  if (rules.period == 0) return {};
  TRY(const auto key, keys.FindCount("attention.sliding_window", {0, MetaKeys::kMaxContext}));
  if (rules.is_optional && key.value_or(0) == 0) return {};
  TRY(const uint32_t window, keys.Count("attention.sliding_window", {1, MetaKeys::kMaxContext}));
  TRY(const std::vector<bool> has_window, ReadWindowPattern(keys, rules, blocks));
  for (size_t l = 0; l < layers.size(); ++l) {
    AttentionSpec& attention = layers[l];
    if (has_window[l]) {
      attention.window = window;
      TRY_STATUS(RotateInWindow(keys, rules, n_ctx_train, attention));
    } else if (!rules.rotates_all) {
      attention.rope.reset();
    }
  }
  return {};
}

Result<MixerSpec> ReadState(const MetaKeys& keys, const StateRules& rules, uint32_t n_embd,
                            uint32_t n_all) {
  switch (rules.mixer) {
    case StateMixer::kDeltaNet:
      return ReadDeltaNet(keys, rules);
    case StateMixer::kKimiDelta:
      return ReadKimiDelta(keys, rules, n_all);
    case StateMixer::kMamba2:
      return ReadMamba2(keys);
    case StateMixer::kShortConv:
      return ReadShortConv(keys, n_embd);
    case StateMixer::kNone:
      break;
  }
  std::unreachable();
}

// The mixer of each layer's positions: attention, or the family's replacement for attention.
Result<std::vector<MixerSpec>> ReadMixers(const MetaKeys& keys, const Family& family,
                                          const Blocks& blocks,
                                          const std::vector<AttentionSpec>& attention,
                                          const std::vector<FeedForwardSpec>& feed_forward,
                                          const ModelSpec& spec) {
  std::vector<MixerSpec> mixers(attention.begin(), attention.end());
  if (family.latent.is_used) {
    LatentLayers which{.n_all = blocks.all, .are_there = {}};
    for (const AttentionSpec& layer : attention) which.are_there.push_back(layer.n_head_kv > 0);
    TRY(const auto latent, ReadLatentAttention(keys, family.latent, which, spec.n_ctx_train));
    std::ranges::copy(latent, mixers.begin());
  }
  if (family.has_pooled_attention) {
    TRY(const auto pooled, ReadPooledAttention(keys, family.attention.rope_pairs, blocks.all,
                                               blocks.evaluated, spec.n_ctx_train));
    std::ranges::copy(pooled, mixers.begin());
  }
  if (family.states.mixer != StateMixer::kNone) {
    TRY(const MixerSpec state, ReadState(keys, family.states, spec.n_embd, blocks.all));
    std::vector<bool> has_state;
    if (family.states.layers == StateLayers::kByInterval) {
      TRY(has_state, FindStateLayers(keys, blocks.all, blocks.main));
      has_state.resize(blocks.evaluated, false);  // a layer that predicts has attention
    } else {
      for (const AttentionSpec& layer : attention) has_state.push_back(layer.n_head_kv == 0);
    }
    for (size_t l = 0; l < mixers.size(); ++l) {
      if (has_state[l]) mixers[l] = state;
    }
  }
  if (!family.has_lone_parts) return mixers;
  for (size_t l = 0; l < mixers.size(); ++l) {
    if (feed_forward[l].is_there()) mixers[l] = NoMixerSpec();
  }
  const auto is_attention = [](const MixerSpec& mixer) {
    return std::holds_alternative<AttentionSpec>(mixer);
  };
  if (std::ranges::any_of(mixers, is_attention)) return mixers;
  return Fail(Errc::kInvalidFile, "{}: no layer has attention ({}, {})", keys.path(),
              keys.Full("attention.head_count_kv"), keys.Full("feed_forward_length"));
}

// 1 where the key is missing or 0.
Result<float> ReadScale(const MetaKeys& keys, std::string_view key) {
  TRY(const auto scale, keys.FindFactor(key));
  return scale.value_or(0.0F) == 0.0F ? 1.0F : *scale;
}

Status ReadScales(const MetaKeys& keys, ModelSpec& spec, std::vector<AttentionSpec>& attention) {
  TRY(spec.embedding_scale, ReadScale(keys, "embedding_scale"));
  TRY(spec.residual_scale, ReadScale(keys, "residual_scale"));
  TRY(spec.logit_scale, ReadScale(keys, "logit_scale"));
  spec.router.weight_scale *= spec.residual_scale;
  TRY(const auto scale, keys.FindFactor("attention.scale"));
  for (AttentionSpec& layer : attention) layer.scale = scale.value_or(0.0F);
  return {};
}

// Sets the number of gates that a gate matrix gives: one for each value, or for each head if the
// matrix has that shape.
void FindGates(const MetaKeys& keys, std::vector<AttentionSpec>& attention) {
  for (uint32_t l = 0; l < attention.size(); ++l) {
    AttentionSpec& layer = attention[l];
    const OutputGate gate = layer.form.output_gate;
    if (gate != OutputGate::kSigmoid && gate != OutputGate::kSoftplus) continue;
    layer.n_gate = layer.n_embd_out();
    const TensorInfo* matrix = keys.file().Find(LayerTensorName(l, "attn_gate.weight"));
    const bool is_of_heads = matrix != nullptr && matrix->ne[1] == layer.n_head;
    if (gate == OutputGate::kSoftplus && is_of_heads) layer.n_gate = layer.n_head;
  }
}

// Removes rotation if rope.scaling.finetuned is false.
Status ReadRotation(const MetaKeys& keys, std::vector<AttentionSpec>& attention) {
  TRY(const auto rotates, keys.file().FindBool(keys.Full("rope.scaling.finetuned")));
  if (rotates.value_or(true)) return {};
  for (AttentionSpec& layer : attention) layer.rope.reset();
  return {};
}

// A layer's widths in the metadata; 0 without the key, or where an array has 0.
struct Widths {
  uint32_t ff = 0;      // feed_forward_length
  uint32_t expert = 0;  // expert_feed_forward_length
  uint32_t shared = 0;  // expert_shared_feed_forward_length
};

// Finds the layers that have experts. The router decides: counting rules differ between converters.
Result<std::vector<bool>> FindExpertLayers(const MetaKeys& keys, const Family& family,
                                           const std::vector<Widths>& widths, uint32_t n_layer) {
  std::vector<bool> has_experts(n_layer, true);
  if (family.has_lone_parts) {
    for (uint32_t l = 0; l < n_layer; ++l) has_experts[l] = widths[l].ff > 0;
    if (std::ranges::contains(has_experts, true)) return has_experts;
    return Fail(Errc::kInvalidFile, "{}: no layer has experts ({})", keys.path(),
                keys.Full("feed_forward_length"));
  }
  if (!family.has_dense_layers) {
    TRY(const auto dense, keys.file().FindUniformUint(keys.Full("leading_dense_block_count")));
    if (dense.value_or(0) == 0) return has_experts;
    return RefuseKey(keys, "leading_dense_block_count", *dense, "layers without experts");
  }
  for (uint32_t l = 0; l < n_layer; ++l) {
    if (keys.file().Find(LayerTensorName(l, "ffn_gate_inp.weight")) != nullptr) continue;
    if (keys.file().Find(LayerTensorName(l, "ffn_gate.weight")) == nullptr) {
      return Fail(Errc::kInvalidFile, "{}: layer {} has neither '{}' nor '{}'; convert it again",
                  keys.path(), l, LayerTensorName(l, "ffn_gate_inp.weight"),
                  LayerTensorName(l, "ffn_gate.weight"));
    }
    has_experts[l] = false;
  }
  if (std::ranges::contains(has_experts, true)) return has_experts;
  return Fail(Errc::kUnsupported,
              "{}: no layer has a router (blk.N.ffn_gate_inp.weight); only mixture-of-experts "
              "models are supported",
              keys.path());
}

Result<uint32_t> ReadSharedWidth(const MetaKeys& keys, const Family& family, const Widths& widths,
                                 uint32_t n_ff_expert) {
  const uint32_t width = widths.shared;
  switch (family.shared_expert) {
    case SharedExpertKind::kNone:
      if (width == 0) return 0U;
      return RefuseKey(keys, "expert_shared_feed_forward_length", width, "shared experts");
    case SharedExpertKind::kOptional:
      return width;
    case SharedExpertKind::kLikeExpert: {
      TRY(const uint32_t count,
          keys.CountOr("expert_shared_count", {1, kMaxFeedForward / n_ff_expert}, 1));
      return width > 0 ? width : count * n_ff_expert;
    }
    case SharedExpertKind::kOwnWidth:
      if (width > 0 || widths.ff > 0) return width > 0 ? width : widths.ff;
      return Fail(Errc::kInvalidFile, "{}: metadata '{}' is missing", keys.path(),
                  keys.Full("expert_shared_feed_forward_length"));
    case SharedExpertKind::kCounted: {
      const uint32_t one = width > 0 ? width : n_ff_expert;
      TRY(const uint32_t count, keys.Count("expert_shared_count", {1, kMaxFeedForward / one}));
      return count * one;
    }
  }
  return 0U;
}

Result<uint32_t> ReadExpertWidth(const MetaKeys& keys, const Family& family, const Widths& widths,
                                 uint32_t n_used) {
  uint32_t width = 0;
  if (family.feed_forward_length == FeedForwardLength::kOneExpert && widths.ff > 0) {
    width = widths.ff;
  } else if (widths.expert > 0) {
    width = widths.expert;
  } else if (family.feed_forward_length != FeedForwardLength::kDenseLayer) {
    width = widths.ff / n_used;
  }
  if (width > 0) return width;
  return Fail(Errc::kInvalidFile, "{}: neither '{}' nor '{}' gives the width of an expert",
              keys.path(), keys.Full("expert_feed_forward_length"),
              keys.Full("feed_forward_length"));
}

// A key's widths, [layer of the file].
Result<std::vector<uint32_t>> ReadWidthsOf(const MetaKeys& keys, std::string_view key,
                                           uint32_t least, const Blocks& blocks) {
  if (keys.IsArray(key)) {
    return keys.Counts(key, {0, kMaxFeedForward}, blocks.all, blocks.main);
  }
  TRY(const auto width, keys.FindCount(key, {least, kMaxFeedForward}));
  return std::vector(blocks.all, width.value_or(0));
}

Result<std::vector<Widths>> ReadWidths(const MetaKeys& keys, const Blocks& blocks) {
  std::vector<Widths> widths(blocks.all);
  const auto read = [&](std::string_view key, uint32_t least, uint32_t Widths::* member) -> Status {
    TRY(const std::vector<uint32_t> each, ReadWidthsOf(keys, key, least, blocks));
    for (size_t l = 0; l < each.size(); ++l) widths[l].*member = each[l];
    return {};
  };
  TRY_STATUS(read("feed_forward_length", 1, &Widths::ff));
  TRY_STATUS(read("expert_feed_forward_length", 0, &Widths::expert));
  TRY_STATUS(read("expert_shared_feed_forward_length", 0, &Widths::shared));
  return widths;
}

// 0 without that key.
Result<uint32_t> ReadLatentSize(const MetaKeys& keys, const Family& family, uint32_t n_embd) {
  if (!family.has_latent_experts) return 0U;
  TRY(const auto size, keys.FindCount("moe_latent_size", {0, n_embd}));
  return size.value_or(0);
}

// Reads limits of gates and up projections.
Status ReadLimits(const MetaKeys& keys, Limits rule, const Blocks& blocks,
                  std::vector<FeedForwardSpec>& layers) {
  constexpr std::string_view kOfExperts = "swiglu_clamp_exp";
  constexpr std::string_view kOfShared = "swiglu_clamp_shexp";
  constexpr float kLeast = 1e-6F;  // converters write 0 for no limit
  const auto read = [&](std::string_view key, float FeedForwardSpec::* member) -> Status {
    TRY(const std::vector<float> limits, keys.Factors(key, blocks.all, blocks.evaluated));
    for (size_t l = 0; l < layers.size(); ++l) {
      layers[l].*member = limits[l] > kLeast ? limits[l] : 0.0F;
    }
    return {};
  };
  TRY_STATUS(read(kOfExperts, &FeedForwardSpec::limit_expert));
  const bool has_first_alone = rule == Limits::kOfAllByFirst && !keys.Has(kOfShared);
  return read(has_first_alone ? kOfExperts : kOfShared, &FeedForwardSpec::limit_shared);
}

Result<std::vector<FeedForwardSpec>> ReadFeedForward(const MetaKeys& keys, const Family& family,
                                                     const Blocks& blocks, uint32_t n_used,
                                                     uint32_t n_embd) {
  TRY(const std::vector<Widths> widths, ReadWidths(keys, blocks));
  TRY(const std::vector<bool> has_experts,
      FindExpertLayers(keys, family, widths, blocks.evaluated));
  TRY(const uint32_t n_latent, ReadLatentSize(keys, family, n_embd));
  std::vector<FeedForwardSpec> layers;
  for (uint32_t l = 0; l < blocks.evaluated; ++l) {
    FeedForwardSpec& layer = layers.emplace_back();
    if (has_experts[l]) {
      TRY(layer.n_ff_expert, ReadExpertWidth(keys, family, widths[l], n_used));
      TRY(layer.n_ff_shared, ReadSharedWidth(keys, family, widths[l], layer.n_ff_expert));
      layer.n_latent = n_latent;
      if (!family.has_dense_beside) continue;
    }
    layer.n_ff_dense = widths[l].ff;
    if (layer.n_ff_dense > 0 || family.has_lone_parts) continue;
    return Fail(Errc::kInvalidFile, "{}: '{}' gives layer {} no width", keys.path(),
                keys.Full("feed_forward_length"), l);
  }
  if (family.limits != Limits::kNone) {
    TRY_STATUS(ReadLimits(keys, family.limits, blocks, layers));
  }
  if (!family.has_token_experts) return layers;
  TRY(const uint32_t by_table, keys.CountOr("hash_layer_count", {0, blocks.evaluated}, 0));
  for (uint32_t l = 0; l < by_table; ++l) layers[l].has_token_experts = true;
  return layers;
}

}  // namespace

Status CheckNextTokenLayers(const GgufFile& file, const NextTokenLayers& layers,
                            const std::string& key) {
  std::vector<bool> has_some(layers.end - layers.first);
  std::vector<bool> predicts(has_some.size());
  for (const TensorInfo& tensor : file.tensors()) {
    const std::optional<uint32_t> layer = LayerOfTensorName(tensor.name);
    if (!layer || *layer < layers.first || *layer >= layers.end) continue;
    has_some[*layer - layers.first] = true;
    if (tensor.name.contains(".nextn.")) predicts[*layer - layers.first] = true;
  }
  for (size_t i = 0; i < has_some.size(); ++i) {
    if (!has_some[i] || predicts[i]) continue;
    return Fail(Errc::kInvalidFile,
                "{}: {} is {}, but layer {} predicts no further tokens: none of its tensors is "
                "called nextn; the key is wrong, convert the model again",
                file.paths().front(), Printable(key), has_some.size(), layers.first + i);
  }
  return {};
}

std::unexpected<Error> RefuseKey(const MetaKeys& keys, std::string_view key, uint64_t value,
                                 std::string_view what) {
  return Fail(Errc::kUnsupported, "{}: {} is {}: {} are not supported for this architecture",
              keys.path(), keys.Full(key), value, what);
}

namespace {

Result<StreamsSpec> ReadStreams(const MetaKeys& keys, StreamMixing mixing) {
  constexpr uint32_t kMostStreams = 16;  // no real model comes near either number
  constexpr uint32_t kMostIterations = 1024;
  StreamsSpec streams{.mixing = mixing};
  TRY(streams.n_streams, keys.Count("hyper_connection.count", {1, kMostStreams}));
  if (mixing == StreamMixing::kLowRank) {
    constexpr uint32_t kMostRank = 16384;
    TRY(streams.n_low_rank, keys.Count("hyper_connection.low_rank", {1, kMostRank}));
    return streams;
  }
  TRY(streams.n_iterations,
      keys.Count("hyper_connection.sinkhorn_iterations", {1, kMostIterations}));
  TRY(const auto eps, keys.FindFactor("hyper_connection.epsilon"));
  if (!eps) {
    return Fail(Errc::kInvalidFile, "{}: metadata '{}' is missing; convert the model again",
                keys.path(), keys.Full("hyper_connection.epsilon"));
  }
  streams.eps = *eps;
  return streams;
}

}  // namespace

Status ReadLayers(const MetaKeys& keys, const Family& family, NextTokens next, ModelSpec& spec) {
  if (family.has_encoder) return ReadEncoderLayers(keys, spec);
  TRY(Blocks blocks, ReadBlocks(keys, family));
  if (next == NextTokens::kRead) TRY_STATUS(AddPredicting(keys, family, blocks));
  spec.n_next_token_layers = blocks.all - blocks.evaluated;
  TRY(const auto feed_forward,
      ReadFeedForward(keys, family, blocks, spec.router.n_used, spec.n_embd));
  TRY(std::vector<AttentionSpec> attention, ReadAttention(keys, family, blocks, spec.n_embd));
  TRY_STATUS(ReadNormEpsilon(keys, family, spec));
  for (AttentionSpec& layer : attention) {
    if (family.latent.is_used || family.has_pooled_attention) break;
    TRY(layer.rope, ReadRope(keys, layer.head_dim_k, spec.n_ctx_train));
  }
  TRY_STATUS(ReadWindows(keys, family.windows, blocks, spec.n_ctx_train, attention));
  FindGates(keys, attention);
  for (uint32_t l = 0; l < attention.size(); ++l) {
    attention[l].scale = family.attention_scale;
    attention[l].values_are_keys =
        family.may_share_values && keys.file().Find(LayerTensorName(l, "attn_v.weight")) == nullptr;
  }
  for (size_t l = 0; l < attention.size(); ++l) {
    const uint32_t every = family.windows.unrotated_every;
    const bool is_still = every > 0 && l % every + 1 == every;
    if (is_still || !family.rotates) attention[l].rope.reset();
  }
  spec.has_post_norms = family.has_post_norms;
  if (family.streams) {
    TRY(spec.streams, ReadStreams(keys, *family.streams));
    spec.streams->mixes_head = family.mixes_head;
  }
  if (family.scales_embedding) spec.embedding_scale = std::sqrt(static_cast<float>(spec.n_embd));
  if (family.rotates_by_key) TRY_STATUS(ReadRotation(keys, attention));
  if (family.has_scales) TRY_STATUS(ReadScales(keys, spec, attention));
  TRY(const auto mixers, ReadMixers(keys, family, blocks, attention, feed_forward, spec));
  for (uint32_t l = 0; l < blocks.evaluated; ++l) {
    spec.layers.push_back(
        {.mixer = mixers[l], .feed_forward = feed_forward[l], .predicts = l >= blocks.main});
  }
  return {};
}

}  // namespace moestro
