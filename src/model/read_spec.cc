// SPDX-License-Identifier: MIT
// Keys and defaults follow gguf-py's constants and libllama's loader, so that both read the same
// model out of one file.
#include "model/read_spec.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/terminal.h"
#include "model/file_checks.h"
#include "model/read_layers.h"
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

namespace {

// Upper bounds that no real model comes near. With them every product of two dimensions fits in 64
// bits and ids fit in 16.
constexpr uint64_t kMaxEmbedding = uint64_t{1} << 17;
constexpr uint64_t kMaxExperts = 4096;
constexpr uint64_t kMaxVocabulary = uint64_t{1} << 22;

Result<const Family*> ReadFamily(const GgufFile& file, std::span<const Family> families) {
  TRY(const auto name, file.FindString("general.architecture"));
  if (!name) {
    return Fail(Errc::kInvalidFile, "{}: metadata 'general.architecture' is missing",
                file.paths().front());
  }
  if (const Family* family = FindFamily(families, *name)) return family;
  return Fail(Errc::kUnsupported, "{}: architecture '{}' is not supported; supported are {}",
              file.paths().front(), Printable(*name), FamilyNames(families));
}

Status ReadGating(const MetaKeys& keys, const RouterRules& rules, RouterSpec& router) {
  router.gating = rules.gating;
  TRY(const auto key, keys.file().FindUniformUint(keys.Full("expert_gating_func")));
  if (key.value_or(0) == 0) {
    if (rules.gating_key != Presence::kRequired) return {};
    return Fail(Errc::kInvalidFile, "{}: metadata '{}' is missing; convert the model again",
                keys.path(), keys.Full("expert_gating_func"));
  }
  const bool is_free = rules.gating_key != Presence::kNone;
  std::optional<Gating> named;
  if (*key == 1) named = Gating::kSoftmax;
  if (*key == 2) named = Gating::kSigmoid;
  if (*key == 3) named = Gating::kSoftmaxOfChosen;
  if (*key == 4 && rules.gating == Gating::kSoftplusRoot) named = Gating::kSoftplusRoot;
  if (!named || (*named != rules.gating && !is_free)) {
    return RefuseKey(keys, "expert_gating_func", *key,
                     rules.gating == Gating::kSoftmax && !is_free ? "a router other than softmax"
                                                                  : "routers of that kind");
  }
  router.gating = *named;
  return {};
}

// Reads groups of consecutive experts, all of one size; only experts of the best groups take part.
Status ReadGroups(const MetaKeys& keys, const RouterRules& rules, RouterSpec& router) {
  TRY(const auto key, keys.file().FindUniformUint(keys.Full("expert_group_count")));
  if (key.value_or(0) <= 1) return {};
  if (!rules.has_groups) return RefuseKey(keys, "expert_group_count", *key, "expert groups");
  TRY(router.n_group, keys.Count("expert_group_count", {1, router.n_expert}));
  const uint32_t size = router.n_expert / router.n_group;
  // A group is judged by its two best experts.
  if (router.n_expert % router.n_group != 0 || size < 2) {
    return Fail(Errc::kInvalidFile, "{}: {} experts cannot form {} groups of at least two ({})",
                keys.path(), router.n_expert, router.n_group, keys.Full("expert_group_count"));
  }
  TRY(router.n_group_used, keys.Count("expert_group_used_count", {1, router.n_group}));
  if (uint64_t{router.n_group_used} * size >= router.n_used) return {};
  return Fail(Errc::kInvalidFile, "{}: {} groups of {} experts hold fewer than the {} used ({})",
              keys.path(), router.n_group_used, size, router.n_used,
              keys.Full("expert_group_used_count"));
}

Status ReadRouter(const MetaKeys& keys, const RouterRules& rules, RouterSpec& router) {
  TRY(const auto n_expert, keys.FindCount("expert_count", {0, kMaxExperts}));
  TRY(const auto n_used, keys.FindCount("expert_used_count", {0, kMaxExperts}));
  if (n_used.value_or(0) > n_expert.value_or(0)) {  // no engine computes that
    return Fail(Errc::kInvalidFile, "{}: {} is {}, expected 1 to {}", keys.path(),
                keys.Full("expert_used_count"), *n_used, n_expert.value_or(0));
  }
  if (n_expert.value_or(0) == 0) {
    return Fail(Errc::kUnsupported,
                "{}: a dense model ({} is {}); only mixture-of-experts models are supported",
                keys.path(), keys.Full("expert_count"), n_expert ? "0" : "missing");
  }
  router.n_expert = *n_expert;
  TRY(router.n_used, keys.Count("expert_used_count", {1, *n_expert}));
  router.renormalise = rules.renormalise;
  if (rules.renormalise_by_key) {
    TRY(const auto norm, keys.file().FindBool(keys.Full("expert_weights_norm")));
    router.renormalise = norm.value_or(rules.renormalise);
  }
  if (rules.scales_by_key) {
    TRY(const auto scale, keys.FindFactor("expert_weights_scale"));
    router.weight_scale = scale.value_or(0.0F) == 0.0F ? 1.0F : *scale;
  }
  TRY_STATUS(ReadGating(keys, rules, router));
  return ReadGroups(keys, rules, router);
}

// Takes the vocabulary's size from the embedding table. The metadata must agree, since token ids
// index that table.
Status ReadVocabularySize(const MetaKeys& keys, ModelSpec& spec) {
  const TensorInfo* table = keys.file().Find("token_embd.weight");
  if (table == nullptr) {
    return Fail(Errc::kInvalidFile,
                "{}: tensor 'token_embd.weight' is missing; a file with a "
                "vocabulary only cannot run",
                keys.path());
  }
  if (table->ne[1] > static_cast<int64_t>(kMaxVocabulary)) {
    return Fail(Errc::kInvalidFile, "{}: token_embd.weight has {} rows, at most {} make sense",
                keys.path(), table->ne[1], kMaxVocabulary);
  }
  spec.n_vocab = static_cast<uint32_t>(table->ne[1]);
  TRY(auto expected, keys.file().FindArrayLength("tokenizer.ggml.tokens"));
  std::string source = "tokenizer.ggml.tokens";
  if (!expected) {
    source = keys.Full("vocab_size");
    TRY(expected, keys.file().FindUint(source));
  }
  if (!expected || *expected == spec.n_vocab) return {};
  return Fail(Errc::kInvalidFile, "{}: {} gives {} tokens, token_embd.weight has {} rows",
              keys.path(), source, *expected, spec.n_vocab);
}

}  // namespace

Result<ModelSpec> ReadSpec(const GgufFile& file, std::span<const Family> families,
                           NextTokens next) {
  TRY(const Family* const family, ReadFamily(file, families));
  const MetaKeys keys(file, family->name);
  ModelSpec spec;
  spec.arch_name = family->name;
  spec.experts = family->experts;
  TRY(const auto name, file.FindString("general.name"));
  spec.name = Printable(name.value_or(""));
  TRY(spec.n_embd, keys.Count("embedding_length", {1, kMaxEmbedding}));
  TRY(spec.n_ctx_train, keys.Count("context_length", {1, MetaKeys::kMaxContext}));
  TRY_STATUS(ReadRouter(keys, family->router, spec.router));
  TRY_STATUS(ReadLayers(keys, *family, next, spec));
  TRY_STATUS(ReadVocabularySize(keys, spec));
  if (family->read != nullptr) TRY_STATUS(family->read(keys, spec));
  spec.tied_output = file.Find("output.weight") == nullptr;
  return spec;
}

}  // namespace moestro
