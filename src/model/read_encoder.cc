// SPDX-License-Identifier: MIT
#include "model/read_encoder.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "model/tensor_names.h"

namespace moestro {
namespace {

constexpr uint64_t kMaxBlocks = 1024;
constexpr uint64_t kMaxBuckets = 65536;
constexpr uint64_t kMaxContextOfEach = MetaKeys::kMaxContext / 2;  // of source and target

Result<AttentionSpec> ReadHeads(const MetaKeys& keys) {
  AttentionSpec attention{.scale = 1.0F};
  TRY(attention.n_head, keys.Count("attention.head_count", {1, MetaKeys::kMaxHeads}));
  attention.n_head_kv = attention.n_head;
  TRY(attention.head_dim_k, keys.Count("attention.key_length", {1, MetaKeys::kMaxHeadDim}));
  TRY(attention.head_dim_v,
      keys.CountOr("attention.value_length", {1, MetaKeys::kMaxHeadDim}, attention.head_dim_k));
  if (attention.head_dim_k == attention.head_dim_v) return attention;
  return Fail(Errc::kUnsupported, "{}: key length {} and value length {} differ ({})", keys.path(),
              attention.head_dim_k, attention.head_dim_v, keys.Full("attention.value_length"));
}

Result<RelativeBias> ReadBias(const MetaKeys& keys) {
  RelativeBias bias;
  TRY(bias.n_buckets, keys.Count("attention.relative_buckets_count", {4, kMaxBuckets}));
  TRY(bias.max_distance, keys.Count("attention.relative_max_distance", {1, MetaKeys::kMaxContext}));
  // Half of a side's buckets are for one distance each.
  if (bias.n_buckets % 4 == 0 && bias.max_distance > bias.n_buckets / 2) return bias;
  return Fail(Errc::kInvalidFile,
              "{}: {} is {}, expected a multiple of 4 whose half is below {}, which is {}",
              keys.path(), keys.Full("attention.relative_buckets_count"), bias.n_buckets,
              keys.Full("attention.relative_max_distance"), bias.max_distance);
}

Status CheckThere(const MetaKeys& keys, size_t layer, std::string_view tensor) {
  const std::string name = LayerTensorName(static_cast<uint32_t>(layer), tensor);
  if (keys.file().Find(name) != nullptr) return {};
  return Fail(Errc::kInvalidFile, "{}: tensor '{}' is missing; convert the model again",
              keys.path(), name);
}

struct BlockWidths {
  uint32_t dense = 0;
  uint32_t expert = 0;
};

// The router decides which layers have experts.
Result<FeedForwardSpec> ReadBlockFeedForward(const MetaKeys& keys, const BlockWidths& widths,
                                             size_t layer) {
  TRY_STATUS(CheckThere(keys, layer, "ffn_norm.weight"));
  const std::string router = LayerTensorName(static_cast<uint32_t>(layer), "ffn_gate_inp.weight");
  if (keys.file().Find(router) != nullptr) return FeedForwardSpec{.n_ff_expert = widths.expert};
  return FeedForwardSpec{.n_ff_dense = widths.dense};
}

}  // namespace

Status ReadEncoderLayers(const MetaKeys& keys, ModelSpec& spec) {
  EncoderSpec encoder;
  TRY(encoder.n_layer, keys.Count("block_count", {1, kMaxBlocks}));
  TRY(const uint32_t n_decoder, keys.Count("decoder_block_count", {1, kMaxBlocks}));
  TRY(const auto eps, keys.FindFactor("attention.layer_norm_rms_epsilon"));
  if (!eps) {
    return Fail(Errc::kInvalidFile, "{}: metadata '{}' is missing; convert the model again",
                keys.path(), keys.Full("attention.layer_norm_rms_epsilon"));
  }
  spec.rms_eps = *eps;
  BlockWidths widths;
  TRY(widths.dense, keys.Count("feed_forward_length", {1, MetaKeys::kMaxFeedForward}));
  TRY(widths.expert,
      keys.CountOr("expert_feed_forward_length", {1, MetaKeys::kMaxFeedForward}, widths.dense));
  TRY(const AttentionSpec heads, ReadHeads(keys));
  TRY(RelativeBias bias, ReadBias(keys));
  bias.is_two_sided = true;
  AttentionSpec attention = heads;
  attention.reach = AttentionReach::kSource;
  attention.relative = bias;
  TRY_STATUS(CheckThere(keys, 0, "attn_rel_b.weight"));
  for (uint32_t block = 0; block < encoder.n_layer; ++block) {
    TRY(const FeedForwardSpec feed_forward, ReadBlockFeedForward(keys, widths, spec.layers.size()));
    spec.layers.push_back({.mixer = attention, .feed_forward = feed_forward});
  }
  attention.reach = AttentionReach::kPast;
  attention.relative->is_two_sided = false;
  attention.relative->layer = static_cast<uint16_t>(encoder.n_layer);
  TRY_STATUS(CheckThere(keys, encoder.n_layer, "attn_rel_b.weight"));
  AttentionSpec across = heads;
  across.reach = AttentionReach::kAcross;
  for (uint32_t block = 0; block < n_decoder; ++block) {
    spec.layers.push_back({.mixer = attention});
    TRY(const FeedForwardSpec feed_forward, ReadBlockFeedForward(keys, widths, spec.layers.size()));
    spec.layers.push_back({.mixer = across, .feed_forward = feed_forward});
  }
  TRY(const auto capacity, keys.FindCount("expert_capacity", {0, MetaKeys::kMaxContext}));
  encoder.capacity = capacity.value_or(0);
  spec.encoder = encoder;
  if (spec.n_expert_layers() > 0) return {};
  return Fail(Errc::kUnsupported,
              "{}: no layer has a router (blk.N.ffn_gate_inp.weight); only mixture-of-experts "
              "models are supported",
              keys.path());
}

Status ReadEncoderTokens(const MetaKeys& keys, ModelSpec& spec) {
  const auto token_of = [&](const std::string& key, uint64_t fallback) -> Result<Token> {
    TRY(const auto token, keys.file().FindUint(key));
    const uint64_t value = token.value_or(fallback);
    if (value < spec.n_vocab) return static_cast<Token>(value);
    return Fail(Errc::kInvalidFile, "{}: {} is {}, and the vocabulary has {} tokens", keys.path(),
                key, value, spec.n_vocab);
  };
  constexpr uint64_t kPad = 0;
  constexpr uint64_t kEnd = 1;
  TRY(spec.encoder->source_end, token_of("tokenizer.ggml.eos_token_id", kEnd));
  TRY(spec.encoder->target_begin, token_of(keys.Full("decoder_start_token_id"), kPad));
  if (spec.router.n_used != 1) {
    return Fail(Errc::kUnsupported, "{}: {} is {}, and a row of this architecture has one expert",
                keys.path(), keys.Full("expert_used_count"), spec.router.n_used);
  }
  if (keys.file().Find("output.weight") == nullptr) {
    spec.logit_scale = std::sqrt(static_cast<float>(spec.n_embd));
  }
  spec.n_ctx_train =
      2 * static_cast<uint32_t>(std::min<uint64_t>(spec.n_ctx_train, kMaxContextOfEach));
  return {};
}

}  // namespace moestro
