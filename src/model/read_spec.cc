// SPDX-License-Identifier: MIT
// Keys and defaults follow gguf-py's constants and libllama's loader, so that both read the same
// model out of one file.
#include "model/read_spec.h"

#include <array>
#include <cmath>
#include <optional>
#include <string_view>

#include "model/printable.h"

namespace moestro {
namespace {

// Upper bounds that no real model comes near. With them every product of two dimensions fits in 64
// bits and ids fit in 16.
constexpr uint64_t kMaxLayers = 4096;
constexpr uint64_t kMaxEmbedding = uint64_t{1} << 17;
constexpr uint64_t kMaxHeads = 4096;
constexpr uint64_t kMaxHeadDim = 4096;
constexpr uint64_t kMaxFeedForward = uint64_t{1} << 20;
constexpr uint64_t kMaxExperts = 4096;
constexpr uint64_t kMaxVocabulary = uint64_t{1} << 22;
constexpr uint64_t kMaxContext = uint64_t{1} << 30;

struct ArchEntry {
  std::string_view name;
  Arch arch;
  bool renormalise;           // the K router weights are divided by their sum
  bool ff_length_is_experts;  // feed_forward_length is one expert's, else all used ones together
};
constexpr std::array kArchs{
    ArchEntry{"llama", Arch::kLlama, true, true},
    ArchEntry{"qwen2moe", Arch::kQwen2Moe, false, false},
    ArchEntry{"qwen3moe", Arch::kQwen3Moe, true, false},
    ArchEntry{"olmoe", Arch::kOlmoe, false, true},
    ArchEntry{"phimoe", Arch::kPhimoe, true, true},
};

std::string SupportedArchs() {
  std::string list;
  for (const ArchEntry& entry : kArchs) {
    if (!list.empty()) list += ", ";
    list += entry.name;
  }
  return list;
}

struct Range {
  uint64_t min;
  uint64_t max;
};

// The keys of one architecture: "<arch>.<key>", each value inside a range.
class Keys {
 public:
  Keys(const GgufFile& file, std::string_view arch) : file_(file), prefix_(arch) { prefix_ += '.'; }

  std::string Full(std::string_view key) const { return prefix_ + std::string(key); }
  const std::string& path() const { return file_.paths().front(); }
  const GgufFile& file() const { return file_; }

  Result<std::optional<uint32_t>> FindCount(std::string_view key, Range range) const {
    TRY(const auto value, file_.FindUniformUint(Full(key)));
    if (!value) return std::nullopt;
    if (*value < range.min || *value > range.max) {
      return Fail(Errc::kInvalidFile, "{}: {} is {}, expected {} to {}", path(), Full(key), *value,
                  range.min, range.max);
    }
    return static_cast<uint32_t>(*value);
  }
  Result<uint32_t> Count(std::string_view key, Range range) const {
    TRY(const auto value, FindCount(key, range));
    if (value) return *value;
    return Fail(Errc::kInvalidFile, "{}: metadata '{}' is missing; convert the model again", path(),
                Full(key));
  }
  Result<uint32_t> CountOr(std::string_view key, Range range, uint64_t fallback) const {
    TRY(const auto value, FindCount(key, range));
    if (value) return *value;
    if (fallback >= range.min && fallback <= range.max) return static_cast<uint32_t>(fallback);
    return Fail(Errc::kInvalidFile, "{}: '{}' is missing and its default {} is not within {} to {}",
                path(), Full(key), fallback, range.min, range.max);
  }
  // Finite and at least 0.
  Result<std::optional<float>> FindFactor(std::string_view key) const {
    TRY(const auto value, file_.FindFloat(Full(key)));
    if (!value) return std::nullopt;
    const auto factor = static_cast<float>(*value);
    if (std::isfinite(factor) && factor >= 0.0F) return factor;
    return Fail(Errc::kInvalidFile, "{}: {} is {}, expected a number of at least 0", path(),
                Full(key), *value);
  }

 private:
  const GgufFile& file_;
  std::string prefix_;
};

Result<ArchEntry> ReadArch(const GgufFile& file) {
  TRY(const auto name, file.FindString("general.architecture"));
  if (!name) {
    return Fail(Errc::kInvalidFile, "{}: metadata 'general.architecture' is missing",
                file.paths().front());
  }
  for (const ArchEntry& entry : kArchs) {
    if (entry.name == *name) return entry;
  }
  return Fail(Errc::kUnsupported, "{}: architecture '{}' is not supported; supported are {}",
              file.paths().front(), Printable(*name), SupportedArchs());
}

Status ReadAttention(const Keys& keys, ModelSpec& spec) {
  TRY(spec.n_head, keys.Count("attention.head_count", {1, kMaxHeads}));
  TRY(spec.n_head_kv, keys.CountOr("attention.head_count_kv", {1, spec.n_head}, spec.n_head));
  if (spec.n_head % spec.n_head_kv != 0) {
    return Fail(Errc::kInvalidFile, "{}: {} heads cannot share {} key-value heads ({})",
                keys.path(), spec.n_head, spec.n_head_kv, keys.Full("attention.head_count_kv"));
  }
  TRY(const auto key_length, keys.FindCount("attention.key_length", {1, kMaxHeadDim}));
  if (!key_length && spec.n_embd % spec.n_head != 0) {
    return Fail(Errc::kInvalidFile,
                "{}: embedding length {} is not divisible by {} heads and '{}' is missing",
                keys.path(), spec.n_embd, spec.n_head, keys.Full("attention.key_length"));
  }
  const uint32_t default_dim = spec.n_embd / spec.n_head;
  TRY(spec.head_dim_k, keys.CountOr("attention.key_length", {1, kMaxHeadDim}, default_dim));
  TRY(spec.head_dim_v, keys.CountOr("attention.value_length", {1, kMaxHeadDim}, default_dim));
  if (spec.head_dim_k != spec.head_dim_v) {
    return Fail(Errc::kUnsupported, "{}: key length {} and value length {} differ ({})",
                keys.path(), spec.head_dim_k, spec.head_dim_v, keys.Full("attention.value_length"));
  }
  TRY(const auto eps, keys.FindFactor("attention.layer_norm_rms_epsilon"));
  if (!eps) {
    return Fail(Errc::kInvalidFile, "{}: metadata '{}' is missing; convert the model again",
                keys.path(), keys.Full("attention.layer_norm_rms_epsilon"));
  }
  spec.rms_eps = *eps;
  if (spec.arch == Arch::kOlmoe) {
    TRY(const auto clamp, keys.FindFactor("attention.clamp_kqv"));
    spec.clamp_kqv = clamp.value_or(0.0F);
  }
  return {};
}

Status ReadRopeScaling(const Keys& keys, RopeSpec& rope) {
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

Status ReadRope(const Keys& keys, ModelSpec& spec) {
  RopeSpec& rope = spec.rope;
  TRY(rope.n_dims, keys.CountOr("rope.dimension_count", {2, spec.head_dim_k}, spec.head_dim_k));
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
      keys.CountOr("rope.scaling.original_context_length", {1, kMaxContext}, spec.n_ctx_train));
  return ReadRopeScaling(keys, rope);
}

Status CheckRouterKind(const Keys& keys) {
  struct Only {
    std::string_view key;
    uint64_t allowed;  // besides 0
    std::string_view why;
  };
  constexpr std::array kOnly{
      Only{"leading_dense_block_count", 0, "layers without experts"},
      Only{"expert_gating_func", 1, "a router other than softmax"},
      Only{"expert_group_count", 1, "expert groups"},
  };
  for (const Only& only : kOnly) {
    TRY(const auto value, keys.file().FindUniformUint(keys.Full(only.key)));
    if (!value || *value == 0 || *value == only.allowed) continue;
    return Fail(Errc::kUnsupported, "{}: {} is {}: {} are not supported for this architecture",
                keys.path(), keys.Full(only.key), *value, only.why);
  }
  return {};
}

Status ReadExperts(const Keys& keys, const ArchEntry& arch, ModelSpec& spec) {
  TRY(const auto n_expert, keys.FindCount("expert_count", {0, kMaxExperts}));
  if (n_expert.value_or(0) == 0) {
    return Fail(Errc::kUnsupported,
                "{}: a dense model ({} is {}); only mixture-of-experts models are supported",
                keys.path(), keys.Full("expert_count"), n_expert ? "0" : "missing");
  }
  spec.router.n_expert = *n_expert;
  TRY(spec.router.n_used, keys.Count("expert_used_count", {1, *n_expert}));
  spec.router.renormalise = arch.renormalise;
  TRY(const auto scale, keys.FindFactor("expert_weights_scale"));
  spec.router.weight_scale = scale.value_or(0.0F) == 0.0F ? 1.0F : *scale;
  TRY_STATUS(CheckRouterKind(keys));

  TRY(const auto n_ff, keys.FindCount("feed_forward_length", {1, kMaxFeedForward}));
  TRY(const auto n_ff_expert, keys.FindCount("expert_feed_forward_length", {0, kMaxFeedForward}));
  if (arch.ff_length_is_experts && n_ff) {
    spec.n_ff_expert = *n_ff;
  } else if (n_ff_expert.value_or(0) > 0) {
    spec.n_ff_expert = *n_ff_expert;
  } else if (n_ff) {
    spec.n_ff_expert = *n_ff / spec.router.n_used;
  }
  if (spec.n_ff_expert == 0) {
    return Fail(Errc::kInvalidFile, "{}: neither '{}' nor '{}' gives the width of an expert",
                keys.path(), keys.Full("expert_feed_forward_length"),
                keys.Full("feed_forward_length"));
  }
  TRY(const auto shared, keys.FindCount("expert_shared_feed_forward_length", {0, kMaxFeedForward}));
  if (spec.arch == Arch::kQwen2Moe) {
    spec.n_ff_shared = shared.value_or(0) > 0 ? *shared : n_ff.value_or(0);
    if (spec.n_ff_shared > 0) return {};
    return Fail(Errc::kInvalidFile, "{}: metadata '{}' is missing", keys.path(),
                keys.Full("expert_shared_feed_forward_length"));
  }
  if (shared.value_or(0) > 0) {
    return Fail(Errc::kUnsupported, "{}: {} is {}: shared experts are supported in qwen2moe only",
                keys.path(), keys.Full("expert_shared_feed_forward_length"), *shared);
  }
  return {};
}

// The embedding table decides; what the metadata says must agree, as it indexes that table.
Status ReadVocabularySize(const Keys& keys, ModelSpec& spec) {
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

Result<ModelSpec> ReadSpec(const GgufFile& file) {
  TRY(const ArchEntry arch, ReadArch(file));
  const Keys keys(file, arch.name);
  ModelSpec spec;
  spec.arch = arch.arch;
  spec.arch_name = arch.name;
  TRY(const auto name, file.FindString("general.name"));
  spec.name = Printable(name.value_or(""));
  TRY(spec.n_layer, keys.Count("block_count", {1, kMaxLayers}));
  TRY(spec.n_embd, keys.Count("embedding_length", {1, kMaxEmbedding}));
  TRY(spec.n_ctx_train, keys.Count("context_length", {1, kMaxContext}));
  TRY_STATUS(ReadExperts(keys, arch, spec));
  TRY_STATUS(ReadAttention(keys, spec));
  TRY_STATUS(ReadRope(keys, spec));
  TRY_STATUS(ReadVocabularySize(keys, spec));
  spec.tied_output = file.Find("output.weight") == nullptr;
  return spec;
}

}  // namespace moestro
