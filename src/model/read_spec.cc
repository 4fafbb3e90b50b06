// SPDX-License-Identifier: MIT
// Keys and defaults follow gguf-py's constants and libllama's loader, so that both read the same
// model out of one file.
#include "model/read_spec.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "base/printable.h"
#include "model/meta_keys.h"
#include "model/tensor_names.h"

namespace moestro {
namespace {

// Upper bounds that no real model comes near. With them every product of two dimensions fits in 64
// bits and ids fit in 16.
constexpr uint64_t kMaxLayers = 4096;
constexpr uint64_t kMaxEmbedding = uint64_t{1} << 17;
constexpr uint64_t kMaxHeads = 4096;
constexpr uint64_t kMaxHeadDim = 4096;
constexpr uint64_t kMaxExperts = 4096;
constexpr uint64_t kMaxVocabulary = uint64_t{1} << 22;
constexpr uint64_t kMaxContext = uint64_t{1} << 30;

constexpr uint64_t kMaxFeedForward = MetaKeys::kMaxFeedForward;

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

// What all layers have in common, until a family's read() says otherwise.
Result<AttentionSpec> ReadAttention(const MetaKeys& keys, const Family& family,
                                    const ModelSpec& spec) {
  AttentionSpec attention{.form = family.attention};
  TRY(attention.n_head, keys.Count("attention.head_count", {1, kMaxHeads}));
  TRY(attention.n_head_kv,
      keys.CountOr("attention.head_count_kv", {1, attention.n_head}, attention.n_head));
  if (attention.n_head % attention.n_head_kv != 0) {
    return Fail(Errc::kInvalidFile, "{}: {} heads cannot share {} key-value heads ({})",
                keys.path(), attention.n_head, attention.n_head_kv,
                keys.Full("attention.head_count_kv"));
  }
  TRY(const auto key_length, keys.FindCount("attention.key_length", {1, kMaxHeadDim}));
  if (!key_length && spec.n_embd % attention.n_head != 0) {
    return Fail(Errc::kInvalidFile,
                "{}: embedding length {} is not divisible by {} heads and '{}' is missing",
                keys.path(), spec.n_embd, attention.n_head, keys.Full("attention.key_length"));
  }
  const uint32_t default_dim = spec.n_embd / attention.n_head;
  TRY(attention.head_dim_k, keys.CountOr("attention.key_length", {1, kMaxHeadDim}, default_dim));
  TRY(attention.head_dim_v, keys.CountOr("attention.value_length", {1, kMaxHeadDim}, default_dim));
  if (attention.head_dim_k != attention.head_dim_v && !family.has_value_heads_of_own) {
    return Fail(Errc::kUnsupported, "{}: key length {} and value length {} differ ({})",
                keys.path(), attention.head_dim_k, attention.head_dim_v,
                keys.Full("attention.value_length"));
  }
  return attention;
}

Status ReadNormEpsilon(const MetaKeys& keys, ModelSpec& spec) {
  TRY(const auto eps, keys.FindFactor("attention.layer_norm_rms_epsilon"));
  if (!eps) {
    return Fail(Errc::kInvalidFile, "{}: metadata '{}' is missing; convert the model again",
                keys.path(), keys.Full("attention.layer_norm_rms_epsilon"));
  }
  spec.rms_eps = *eps;
  return {};
}

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
  // ggml's YaRN multiplies the magnitude by 1 + 0.1 ln(factor) on its own; this comes on top.
  TRY(const auto attn_factor, keys.FindFactor("rope.scaling.attn_factor"));
  rope.attn_factor = attn_factor.value_or(1.0F);
  return {};
}

Result<RopeSpec> ReadRope(const MetaKeys& keys, uint32_t head_dim, uint32_t n_ctx_train) {
  RopeSpec rope;
  TRY(rope.n_dims, keys.CountOr("rope.dimension_count", {2, head_dim}, head_dim));
  if (rope.n_dims % 2 != 0) {
    return Fail(Errc::kInvalidFile, "{}: {} is {}, expected an even number", keys.path(),
                keys.Full("rope.dimension_count"), rope.n_dims);
  }
  TRY(const auto base, keys.FindFactor("rope.freq_base"));
  rope.freq_base = base.value_or(10000.0F);
  if (rope.freq_base <= 0.0F) {
    return Fail(Errc::kInvalidFile, "{}: {} is {}, expected more than 0", keys.path(),
                keys.Full("rope.freq_base"), rope.freq_base);
  }
  TRY(rope.original_context,
      keys.CountOr("rope.scaling.original_context_length", {1, kMaxContext}, n_ctx_train));
  TRY_STATUS(ReadRopeScaling(keys, rope));
  return rope;
}

std::unexpected<Error> Refuse(const MetaKeys& keys, std::string_view key, uint64_t value,
                              std::string_view what) {
  return Fail(Errc::kUnsupported, "{}: {} is {}: {} are not supported for this architecture",
              keys.path(), keys.Full(key), value, what);
}

Status ReadGating(const MetaKeys& keys, const RouterRules& rules, RouterSpec& router) {
  router.gating = rules.gating;
  TRY(const auto key, keys.file().FindUniformUint(keys.Full("expert_gating_func")));
  if (key.value_or(0) == 0) return {};
  std::optional<Gating> named;
  if (*key == 1) named = Gating::kSoftmax;
  if (*key == 2) named = Gating::kSigmoid;
  if (*key == 3) named = Gating::kSoftmaxOfChosen;
  if (!named || (*named != rules.gating && !rules.gating_by_key)) {
    return Refuse(keys, "expert_gating_func", *key,
                  rules.gating == Gating::kSoftmax && !rules.gating_by_key
                      ? "a router other than softmax"
                      : "routers of that kind");
  }
  router.gating = *named;
  return {};
}

// Consecutive experts in groups of equal size; those of the best groups take part.
Status ReadGroups(const MetaKeys& keys, const RouterRules& rules, RouterSpec& router) {
  TRY(const auto key, keys.file().FindUniformUint(keys.Full("expert_group_count")));
  if (key.value_or(0) <= 1) return {};
  if (!rules.has_groups) return Refuse(keys, "expert_group_count", *key, "expert groups");
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
  TRY(const auto scale, keys.FindFactor("expert_weights_scale"));
  router.weight_scale = scale.value_or(0.0F) == 0.0F ? 1.0F : *scale;
  TRY_STATUS(ReadGating(keys, rules, router));
  return ReadGroups(keys, rules, router);
}

// Which layers have experts. The router decides: counting rules differ between converters.
Result<std::vector<bool>> FindExpertLayers(const MetaKeys& keys, const Family& family,
                                           uint32_t n_layer) {
  std::vector<bool> has_experts(n_layer, true);
  if (!family.has_dense_layers) {
    TRY(const auto dense, keys.file().FindUniformUint(keys.Full("leading_dense_block_count")));
    if (dense.value_or(0) == 0) return has_experts;
    return Refuse(keys, "leading_dense_block_count", *dense, "layers without experts");
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

Result<uint32_t> ReadSharedWidth(const MetaKeys& keys, const Family& family, uint32_t n_ff_expert) {
  TRY(const auto width, keys.FindCount("expert_shared_feed_forward_length", {0, kMaxFeedForward}));
  switch (family.shared_expert) {
    case SharedExpert::kNone:
      if (width.value_or(0) == 0) return 0U;
      return Refuse(keys, "expert_shared_feed_forward_length", *width, "shared experts");
    case SharedExpert::kOwnWidth: {
      TRY(const auto n_ff, keys.FindCount("feed_forward_length", {1, kMaxFeedForward}));
      const uint32_t n_ff_shared = width.value_or(0) > 0 ? *width : n_ff.value_or(0);
      if (n_ff_shared > 0) return n_ff_shared;
      return Fail(Errc::kInvalidFile, "{}: metadata '{}' is missing", keys.path(),
                  keys.Full("expert_shared_feed_forward_length"));
    }
    case SharedExpert::kCounted: {
      TRY(const uint32_t count,
          keys.Count("expert_shared_count", {1, kMaxFeedForward / n_ff_expert}));
      return count * n_ff_expert;
    }
  }
  return 0U;
}

Result<uint32_t> ReadExpertWidth(const MetaKeys& keys, const Family& family, uint32_t n_used) {
  TRY(const auto n_ff, keys.FindCount("feed_forward_length", {1, kMaxFeedForward}));
  TRY(const auto n_ff_expert, keys.FindCount("expert_feed_forward_length", {0, kMaxFeedForward}));
  uint32_t width = 0;
  if (family.feed_forward_length == FeedForwardLength::kOneExpert && n_ff) {
    width = *n_ff;
  } else if (n_ff_expert.value_or(0) > 0) {
    width = *n_ff_expert;
  } else if (family.feed_forward_length != FeedForwardLength::kDenseLayer && n_ff) {
    width = *n_ff / n_used;
  }
  if (width > 0) return width;
  return Fail(Errc::kInvalidFile, "{}: neither '{}' nor '{}' gives the width of an expert",
              keys.path(), keys.Full("expert_feed_forward_length"),
              keys.Full("feed_forward_length"));
}

// Each layer as the keys that hold for all of them say.
Status ReadLayers(const MetaKeys& keys, const Family& family, ModelSpec& spec) {
  TRY(const uint32_t n_layer, keys.Count("block_count", {1, kMaxLayers}));
  TRY(const std::vector<bool> has_experts, FindExpertLayers(keys, family, n_layer));
  FeedForwardSpec experts;
  FeedForwardSpec dense;
  TRY(experts.n_ff_expert, ReadExpertWidth(keys, family, spec.router.n_used));
  if (std::ranges::contains(has_experts, false)) {
    TRY(dense.n_ff_dense, keys.Count("feed_forward_length", {1, kMaxFeedForward}));
  }
  TRY(experts.n_ff_shared, ReadSharedWidth(keys, family, experts.n_ff_expert));
  TRY(AttentionSpec attention, ReadAttention(keys, family, spec));
  TRY_STATUS(ReadNormEpsilon(keys, spec));
  TRY(attention.rope, ReadRope(keys, attention.head_dim_k, spec.n_ctx_train));
  for (const bool has : has_experts) {
    spec.layers.push_back({.mixer = attention, .feed_forward = has ? experts : dense});
  }
  return {};
}

// The embedding table decides; what the metadata says must agree, as it indexes that table.
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

Result<ModelSpec> ReadSpec(const GgufFile& file, std::span<const Family> families) {
  TRY(const Family* const family, ReadFamily(file, families));
  const MetaKeys keys(file, family->name);
  ModelSpec spec;
  spec.arch_name = family->name;
  spec.experts = family->experts;
  TRY(const auto name, file.FindString("general.name"));
  spec.name = Printable(name.value_or(""));
  TRY(spec.n_embd, keys.Count("embedding_length", {1, kMaxEmbedding}));
  TRY(spec.n_ctx_train, keys.Count("context_length", {1, kMaxContext}));
  TRY_STATUS(ReadRouter(keys, family->router, spec.router));
  TRY_STATUS(ReadLayers(keys, *family, spec));
  TRY_STATUS(ReadVocabularySize(keys, spec));
  if (family->read != nullptr) TRY_STATUS(family->read(keys, spec));
  spec.tied_output = file.Find("output.weight") == nullptr;
  return spec;
}

}  // namespace moestro
