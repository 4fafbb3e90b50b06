// SPDX-License-Identifier: MIT
#include "offline/convert/switch_tensors.h"

#include <array>
#include <functional>
#include <set>
#include <string_view>

#include "base/format.h"
#include "base/printable.h"
#include "model/tensor_names.h"
#include "offline/quantize/requantize.h"

namespace moestro {
namespace {

// A tensor of T5's decoder that older folders have and the model does not use: cross attention has
// no bias.
constexpr std::string_view kUnusedBias =
    "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight";
constexpr std::string_view kOutput = "lm_head.weight";

// "8, 64".
std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t size : shape) text += Format("{}{}", text.empty() ? "" : ", ", size);
  return text;
}

class TensorPlan {
 public:
  TensorPlan(const SwitchConfig& config, const FolderWeights& weights, ggml_type type)
      : config_(config), weights_(weights), type_(type) {}

  Result<SwitchTensors> Make() {
    TRY_STATUS(AddEmbedding());
    TRY_STATUS(AddStack(SwitchStack::kEncoder, "encoder"));
    TRY_STATUS(AddNorm("encoder_norm.weight", "encoder.final_layer_norm.weight"));
    TRY_STATUS(AddStack(SwitchStack::kDecoder, "decoder"));
    TRY_STATUS(AddNorm("output_norm.weight", "decoder.final_layer_norm.weight"));
    TRY_STATUS(AddOutput());
    for (const auto& [name, stored] : weights_.tensors()) {
      if (used_.contains(name) || name == kUnusedBias) continue;
      return Fail(Errc::kInvalidFile,
                  "tensor '{}' has no place in a model of this configuration; config.json is of "
                  "another one",
                  Printable(name));
    }
    return std::move(made_);
  }

 private:
  // Takes a tensor of the folder; sizes as in a GGUF.
  Result<NamedTensor> Take(const std::string& name, const std::vector<int64_t>& ne) {
    const StoredTensor* stored = weights_.Find(name);
    if (stored == nullptr) {
      return Fail(Errc::kInvalidFile, "the folder has no tensor '{}', which its config.json wants",
                  name);
    }
    const std::vector<int64_t> shape(ne.rbegin(), ne.rend());
    if (stored->shape != shape) {
      return Fail(Errc::kInvalidFile, "tensor '{}' has the shape {} where config.json wants {}",
                  name, ShapeText(stored->shape), ShapeText(shape));
    }
    used_.insert(name);
    return NamedTensor{name, *stored};
  }

  Status Add(std::string name, ggml_type type, std::vector<int64_t> ne, const std::string& source) {
    TRY(NamedTensor taken, Take(source, ne));
    made_.tensors.push_back(
        {.name = std::move(name), .type = type, .ne = std::move(ne), .sources = {}});
    made_.tensors.back().sources.push_back(std::move(taken));
    return CheckFits(type, made_.tensors.back().width(), source, false);
  }

  Status AddExperts(std::string name, const std::vector<int64_t>& ne, const std::string& experts,
                    const char* matrix) {
    ConvertedTensor tensor{.name = std::move(name), .type = type_, .ne = ne, .sources = {}};
    for (uint32_t expert = 0; expert < config_.experts; ++expert) {
      TRY(NamedTensor taken, Take(Format("{}.expert_{}.{}.weight", experts, expert, matrix), ne));
      tensor.sources.push_back(std::move(taken));
    }
    tensor.ne.push_back(config_.experts);
    TRY_STATUS(CheckFits(type_, tensor.width(), tensor.sources.front().name, false));
    made_.tensors.push_back(std::move(tensor));
    return {};
  }

  // Notes a copy of a tensor that the file has already, if the folder has one.
  Status AddCopy(std::string_view name, const ConvertedTensor& of) {
    if (weights_.Find(name) == nullptr) return {};
    TRY(NamedTensor copy, Take(std::string(name), of.ne));
    const NamedTensor& first = of.sources.front();
    if (copy.stored.type != first.stored.type) {
      return Fail(Errc::kInvalidFile, "tensor '{}' is of another type than '{}', which it copies",
                  name, first.name);
    }
    made_.copies.emplace_back(first, std::move(copy));
    return {};
  }

  // Q4_0 is too coarse for the embedding: each token has one row.
  ggml_type EmbeddingType() const { return type_ == GGML_TYPE_Q4_0 ? GGML_TYPE_Q8_0 : type_; }
  std::vector<int64_t> EmbeddingSizes() const { return {config_.embd, config_.vocab}; }

  // Adds the embedding, which folders have up to three times.
  Status AddEmbedding() {
    constexpr std::array<std::string_view, 3> kNames{"shared.weight", "encoder.embed_tokens.weight",
                                                     "decoder.embed_tokens.weight"};
    std::string_view first = kNames.front();
    for (const std::string_view name : kNames) {
      if (weights_.Find(first) == nullptr) first = name;
    }
    if (weights_.Find(first) == nullptr) first = kNames.front();
    TRY_STATUS(Add("token_embd.weight", EmbeddingType(), EmbeddingSizes(), std::string(first)));
    for (const std::string_view name : kNames) {
      if (name != first) TRY_STATUS(AddCopy(name, made_.tensors.front()));
    }
    return {};
  }

  Status AddOutput() {
    if (config_.is_tied) return AddCopy(kOutput, made_.tensors.front());
    return Add("output.weight", EmbeddingType(), EmbeddingSizes(), std::string(kOutput));
  }

  Status AddNorm(std::string name, const std::string& source) {
    return Add(std::move(name), GGML_TYPE_F32, {config_.embd}, source);
  }

  Status AddAttention(const std::string& name, const std::string& source) {
    const int64_t inner = int64_t{config_.heads} * config_.head_dim;
    for (const char part : {'q', 'k', 'v'}) {
      TRY_STATUS(Add(Format("{}attn_{}.weight", name, part), type_, {config_.embd, inner},
                     Format("{}.{}.weight", source, part)));
    }
    return Add(name + "attn_output.weight", type_, {inner, config_.embd}, source + ".o.weight");
  }

  Status AddFeedForward(const std::string& name, const std::string& source, bool is_sparse) {
    const std::vector<int64_t> up{config_.embd, config_.ff};
    const std::vector<int64_t> down{config_.ff, config_.embd};
    if (!is_sparse) {
      TRY_STATUS(Add(name + "ffn_up.weight", type_, up, source + ".wi.weight"));
      return Add(name + "ffn_down.weight", type_, down, source + ".wo.weight");
    }
    TRY_STATUS(Add(name + "ffn_gate_inp.weight", GGML_TYPE_F32, {config_.embd, config_.experts},
                   source + ".router.classifier.weight"));
    TRY_STATUS(AddExperts(name + "ffn_up_exps.weight", up, source + ".experts", "wi"));
    return AddExperts(name + "ffn_down_exps.weight", down, source + ".experts", "wo");
  }

  // Layers of the file are numbered through both stacks; a block of the decoder is two of them.
  Status AddStack(SwitchStack stack, const std::string& theirs) {
    const bool has_cross = stack == SwitchStack::kDecoder;
    for (uint32_t n = 0; n < config_.layers(stack); ++n) {
      const uint32_t layer = has_cross ? config_.encoder_layers + 2 * n : n;
      std::string name = LayerTensorName(layer, "");
      const std::string source = Format("{}.block.{}.layer.", theirs, n);
      TRY_STATUS(AddNorm(name + "attn_norm.weight", source + "0.layer_norm.weight"));
      TRY_STATUS(AddAttention(name, source + "0.SelfAttention"));
      if (n == 0) {
        TRY_STATUS(Add(name + "attn_rel_b.weight", GGML_TYPE_F32, {config_.heads, config_.buckets},
                       source + "0.SelfAttention.relative_attention_bias.weight"));
      }
      if (has_cross) {
        name = LayerTensorName(layer + 1, "");
        TRY_STATUS(AddNorm(name + "attn_norm.weight", source + "1.layer_norm.weight"));
        TRY_STATUS(AddAttention(name, source + "1.EncDecAttention"));
      }
      const std::string ff = source + (has_cross ? "2" : "1");
      TRY_STATUS(AddNorm(name + "ffn_norm.weight", ff + ".layer_norm.weight"));
      TRY_STATUS(AddFeedForward(name, ff + ".mlp", config_.is_sparse(stack, n)));
    }
    return {};
  }

  const SwitchConfig& config_;
  const FolderWeights& weights_;
  ggml_type type_;
  std::set<std::string, std::less<>> used_;  // of the folder's tensors
  SwitchTensors made_;
};

}  // namespace

Result<SwitchTensors> PlanSwitchTensors(const SwitchConfig& config, const FolderWeights& weights,
                                        ggml_type type) {
  return TensorPlan(config, weights, type).Make();
}

}  // namespace moestro
