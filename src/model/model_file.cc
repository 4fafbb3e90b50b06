// SPDX-License-Identifier: MIT
#include "model/model_file.h"

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "base/result.h"
#include "base/terminal.h"
#include "model/file_checks.h"
#include "model/gguf_file.h"
#include "model/read_spec.h"
#include "model/tensor_names.h"

namespace moestro {
namespace {

// Finds tensors, checks them, and keeps a list of those that have a role.
class Reader {
 public:
  Reader(const GgufFile& file, const ModelSpec& spec, const Family& family)
      : file_(file), spec_(spec), family_(family) {}

  Status ReadModelRoles(ModelWeights& weights);
  Status CheckRotatedAlike(const TensorInfo& factors) const;
  Status ReadLayerRoles(uint32_t layer, LayerWeights& weights);
  Status CheckAttentionForm(uint32_t layer, const LayerWeights& w) const;
  Status CheckDeltaNetForm(uint32_t layer, const LayerWeights& w) const;
  Status ReadExperts(uint32_t layer, const std::optional<FitHeader>& fit, LayerExperts& experts);
  Status CheckAllUsed() const;

 private:
  std::unexpected<Error> Missing(const std::string& name) const {
    return Fail(Errc::kInvalidFile,
                "{}: tensor '{}' is missing for architecture {}; convert the model again",
                file_.paths().front(), name, spec_.arch_name);
  }
  Result<const TensorInfo*> ReadRole(const TensorRole& role, Presence presence,
                                     std::optional<uint32_t> layer);
  Status Check(const TensorInfo& tensor, TensorKind kind, const TensorShape& shape);
  bool IsNameOfRole(std::string_view name) const;
  bool IsOfNextToken(const TensorInfo& tensor) const;
  bool IsOfSharedIndexer(const TensorInfo& tensor) const;

  const GgufFile& file_;
  const ModelSpec& spec_;
  const Family& family_;
  std::unordered_set<const TensorInfo*> used_;
};

// Finds a role's tensor; nullptr if the family or, where the role is optional, the file lacks it.
// `layer`: the layer that the role belongs to; nullopt: the whole model. kInvalidFile: the file has
// tensors of both of the role's names.
Result<const TensorInfo*> Reader::ReadRole(const TensorRole& role, Presence presence,
                                           std::optional<uint32_t> layer) {
  if (presence == Presence::kNone) return nullptr;
  const auto named = [&](std::string_view name) {
    return layer ? LayerTensorName(*layer, name) : std::string(name);
  };
  const TensorInfo* tensor = file_.Find(named(role.name));
  // Another role of the family may have that name.
  const bool is_free = !role.other_name.empty() && !IsNameOfRole(role.other_name) &&
                       (layer || family_.has_other_norm_name);
  const TensorInfo* other = is_free ? file_.Find(named(role.other_name)) : nullptr;
  if (tensor != nullptr && other != nullptr) {
    return Fail(Errc::kInvalidFile, "{}: '{}' and '{}' are two names for one tensor",
                file_.paths().front(), named(role.name), named(role.other_name));
  }
  if (tensor == nullptr) tensor = other;
  if (tensor == nullptr && presence == Presence::kRequired) {
    if (!is_free) return Missing(named(role.name));
    return Missing(named(role.name) + "' or '" + named(role.other_name));
  }
  if (tensor == nullptr) return nullptr;
  const LayerSpec* of = layer ? &spec_.layers[*layer] : nullptr;
  const auto size = [&](Dim dim) { return DimSize(dim, spec_, of); };
  TensorShape shape = {size(role.ne0), size(role.ne1), size(role.ne2), 1};
  // Some files have the groups' matrices as one.
  const bool is_flat = role.ne2 == Dim::kGroups && tensor->ne[2] == 1;
  if (is_flat) shape = {shape[0], shape[1] * shape[2], 1, 1};
  // llama-quantize takes what is added to gates of pools for a matrix.
  const bool is_of_pools = family_.has_pooled_attention && role.name.ends_with("_ape.weight");
  TRY_STATUS(Check(*tensor, is_of_pools ? TensorKind::kMatrix : role.kind, shape));
  return tensor;
}

bool Reader::IsNameOfRole(std::string_view name) const {
  bool is_one = false;
  ForEachLayerRole(
      [&](const TensorRole& role, Presence presence) {
        is_one = is_one || (presence != Presence::kNone && role.name == name);
      },
      family_.layer_tensors);
  return is_one;
}

Status Reader::ReadModelRoles(ModelWeights& weights) {
  Status status;
  const auto read = [&](const TensorRole& role, Presence presence, const TensorInfo*& tensor) {
    if (!status) return;
    auto found = ReadRole(role, presence, std::nullopt);
    if (!found) {
      status = std::unexpected(std::move(found).error());
      return;
    }
    tensor = *found;
    if (tensor != nullptr && role.ne0 == Dim::kHalfRotary) status = CheckRotatedAlike(*tensor);
  };
  ForEachModelRole(read, family_.model_tensors, weights);
  return status;
}

// One set of factors serves all layers: one for each pair of dimensions that a head rotates.
Status Reader::CheckRotatedAlike(const TensorInfo& factors) const {
  for (uint32_t l = 0; l < spec_.n_layer(); ++l) {
    const AttentionSpec* const attention = spec_.layers[l].attention();
    if (attention == nullptr || !attention->rope || !attention->has_rope_factors) continue;
    if (attention->rope->n_dims / 2 == static_cast<uint64_t>(factors.ne[0])) continue;
    return Fail(Errc::kInvalidFile,
                "{}: tensor '{}' has {} factors for all layers, but layer {} rotates {} dimensions",
                file_.paths()[factors.extent.file], factors.name, factors.ne[0], l,
                attention->rope->n_dims);
  }
  return {};
}

Status Reader::ReadLayerRoles(uint32_t layer, LayerWeights& weights) {
  Status status;
  const auto read = [&](const TensorRole& role, Presence presence, const TensorInfo*& tensor) {
    if (!status || !HasPart(spec_.layers[layer], role.part)) return;
    auto found = ReadRole(role, presence, layer);
    if (found) tensor = *found;
    if (!found) status = std::unexpected(std::move(found).error());
  };
  ForEachLayerRole(read, family_.layer_tensors, weights);
  return status;
}

Status Reader::Check(const TensorInfo& tensor, TensorKind kind, const TensorShape& shape) {
  TRY_STATUS(CheckTensorShape(file_, tensor, shape, spec_.arch_name));
  if (kind == TensorKind::kMatrix) TRY_STATUS(CheckMatrixType(file_, tensor));
  if (kind == TensorKind::kVector && tensor.type != GGML_TYPE_F32) {
    return Fail(Errc::kUnsupported, "{}: tensor '{}' has type {}; norms and biases must be f32",
                file_.paths()[tensor.extent.file], tensor.name, ggml_type_name(tensor.type));
  }
  if (kind == TensorKind::kNumbers && tensor.type != GGML_TYPE_I32) {
    return Fail(Errc::kInvalidFile, "{}: tensor '{}' has type {}; numbers of experts must be i32",
                file_.paths()[tensor.extent.file], tensor.name, ggml_type_name(tensor.type));
  }
  used_.insert(&tensor);
  return {};
}

Status Reader::CheckAttentionForm(uint32_t layer, const LayerWeights& w) const {
  const bool fused = w.attn_qkv != nullptr;
  const bool any_single = w.attn_q || w.attn_k || w.attn_v;
  if (fused && any_single) {
    return Fail(Errc::kInvalidFile, "{}: layer {} has both {} and separate attn_q, attn_k, attn_v",
                file_.paths().front(), layer, LayerTensorName(layer, "attn_qkv.weight"));
  }
  if (!fused) {
    if (!w.attn_q) return Missing(LayerTensorName(layer, "attn_q.weight"));
    if (!w.attn_k) return Missing(LayerTensorName(layer, "attn_k.weight"));
    const bool needs_v = !spec_.layers[layer].attention()->values_are_keys;
    if (!w.attn_v && needs_v) return Missing(LayerTensorName(layer, "attn_v.weight"));
  }
  const bool single_bias = w.attn_q_b || w.attn_k_b || w.attn_v_b;
  if (fused ? single_bias : w.attn_qkv_b != nullptr) {
    return Fail(Errc::kInvalidFile,
                "{}: the biases of attention in layer {} do not match its weights",
                file_.paths().front(), layer);
  }
  return {};
}

// Projections are in one matrix or in two.
Status Reader::CheckDeltaNetForm(uint32_t layer, const LayerWeights& w) const {
  const bool any_single = w.delta_qkv != nullptr || w.delta_gate != nullptr;
  if (w.state_in != nullptr && any_single) {
    return Fail(Errc::kInvalidFile, "{}: layer {} has both {} and separate attn_qkv, attn_gate",
                file_.paths().front(), layer, LayerTensorName(layer, "ssm_in.weight"));
  }
  if (w.state_in != nullptr) return {};
  if (w.delta_qkv == nullptr) return Missing(LayerTensorName(layer, "attn_qkv.weight"));
  if (w.delta_gate == nullptr) return Missing(LayerTensorName(layer, "attn_gate.weight"));
  return {};
}

Status Reader::ReadExperts(uint32_t layer, const std::optional<FitHeader>& fit,
                           LayerExperts& experts) {
  TRY(const auto tensors, fit ? FindFittedTensors(file_, spec_, layer, *fit)
                              : FindExpertTensors(file_, spec_, layer, "convert the model again"));
  for (const ExpertTensor& tensor : tensors) used_.insert(tensor.info);
  experts = SliceExperts(tensors);
  return {};
}

// Whether a tensor is part of a layer that predicts further tokens. One that is evaluated has
// copies of the embedding and of the output matrix in some files, for which the model's own serve.
bool Reader::IsOfNextToken(const TensorInfo& tensor) const {
  const std::optional<uint32_t> layer = LayerOfTensorName(tensor.name);
  return layer && *layer >= spec_.n_main_layer() &&
         *layer < spec_.n_layer() + spec_.n_next_token_layers;
}

// Whether the tensor belongs to the indexer of a layer that shares another layer's indexer.
bool Reader::IsOfSharedIndexer(const TensorInfo& tensor) const {
  const std::optional<uint32_t> layer = LayerOfTensorName(tensor.name);
  if (!layer || *layer >= spec_.n_layer() || !tensor.name.contains(".indexer")) return false;
  const LatentAttentionSpec* latent = spec_.layers[*layer].latent_attention();
  return latent != nullptr && latent->indexer && latent->indexer->is_shared;
}

// Refuses a file with a tensor that has no role: such a model does more than this architecture, and
// running it without the tensor would silently give wrong text.
Status Reader::CheckAllUsed() const {
  for (const TensorInfo& tensor : file_.tensors()) {
    if (used_.contains(&tensor) || IsOfNextToken(tensor) || IsOfSharedIndexer(tensor)) continue;
    if (family_.may_hold_vision && IsOfVision(tensor.name)) continue;
    return Fail(Errc::kUnsupported,
                "{}: tensor '{}' has no place in architecture {} with {} layers",
                file_.paths()[tensor.extent.file], Printable(tensor.name), spec_.arch_name,
                spec_.n_layer());
  }
  return {};
}

}  // namespace

Result<ModelWeights> ReadWeights(const GgufFile& file, const ModelSpec& spec,
                                 std::span<const Family> families) {
  const Family* family = FindFamily(families, spec.arch_name);
  CHECK(family != nullptr);
  Reader reader(file, spec, *family);
  ModelWeights weights;
  TRY(weights.fit, ReadFitHeader(file, spec));
  if (weights.fit && spec.predicts()) {
    return Fail(Errc::kUnsupported,
                "{}: layers that predict further tokens are passed over in fitted models",
                file.paths().front());
  }
  TRY_STATUS(reader.ReadModelRoles(weights));
  if (weights.output == nullptr) weights.output = weights.token_embd;
  if ((weights.rope_factors_long == nullptr) != (weights.rope_factors_short == nullptr)) {
    return Fail(Errc::kInvalidFile,
                "{}: only one of rope_factors_long and rope_factors_short is present",
                file.paths().front());
  }
  for (uint32_t layer = 0; layer < spec.n_layer(); ++layer) {
    LayerWeights w;
    TRY_STATUS(reader.ReadLayerRoles(layer, w));
    if (spec.layers[layer].attention() != nullptr) {
      TRY_STATUS(reader.CheckAttentionForm(layer, w));
    }
    const DeltaNetSpec* delta = spec.layers[layer].delta_net();
    if (delta != nullptr && !delta->decays_values) {
      TRY_STATUS(reader.CheckDeltaNetForm(layer, w));
    }
    if (spec.has_experts(layer)) TRY_STATUS(reader.ReadExperts(layer, weights.fit, w.experts));
    weights.layers.push_back(std::move(w));
  }
  TRY_STATUS(reader.CheckAllUsed());
  return weights;
}

std::vector<const TensorInfo*> ModelWeights::dense_tensors() const {
  std::vector<const TensorInfo*> tensors;
  std::unordered_set<const TensorInfo*> seen{nullptr};
  ForEachRole(
      [&](const TensorRole& role, const TensorInfo* tensor) {
        if (role.use == TensorUse::kOnDisk) return;
        if (seen.insert(tensor).second) tensors.push_back(tensor);  // a tied output comes again
      },
      *this);
  return tensors;
}

uint64_t ModelWeights::dense_bytes() const {
  uint64_t bytes = 0;
  for (const TensorInfo* tensor : dense_tensors()) bytes += tensor->extent.length;
  return bytes;
}

Result<ModelFile> ModelFile::Open(const std::string& path, std::span<const Family> families) {
  TRY(GgufFile gguf, GgufFile::Open(path));
  return Of(gguf, families);
}

Result<ModelFile> ModelFile::Of(GgufFile& gguf, std::span<const Family> families, NextTokens next) {
  TRY(ModelSpec spec, ReadSpec(gguf, families, next));
  TRY(ModelWeights weights, ReadWeights(gguf, spec, families));
  ModelId id{
      .name = std::filesystem::path(gguf.paths().front()).filename().string(),
      .fingerprint = Fingerprint(gguf),
      .shape = {.n_layer = spec.n_main_expert_layers(),
                .n_expert = spec.router.n_expert,
                .n_used = spec.router.n_used,
                .n_encoder = spec.encoder ? spec.expert_layers_before(spec.encoder->n_layer) : 0}};
  return ModelFile{.gguf = std::move(gguf),
                   .spec = std::move(spec),
                   .id = std::move(id),
                   .weights = std::move(weights)};
}

}  // namespace moestro
