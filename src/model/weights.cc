// SPDX-License-Identifier: MIT
#include "model/weights.h"

#include <algorithm>
#include <unordered_set>

#include "base/check.h"
#include "base/format.h"
#include "base/printable.h"
#include "model/tensor_names.h"

namespace moestro {
namespace {

// Types with a dot product and a row conversion in ggml's CPU backend. NVFP4 is left out: its files
// carry scales in separate tensors, which no graph here applies.
constexpr std::array kMatrixTypes{
    GGML_TYPE_F32,     GGML_TYPE_F16,    GGML_TYPE_BF16,  GGML_TYPE_Q4_0,  GGML_TYPE_Q4_1,
    GGML_TYPE_Q5_0,    GGML_TYPE_Q5_1,   GGML_TYPE_Q8_0,  GGML_TYPE_Q2_K,  GGML_TYPE_Q3_K,
    GGML_TYPE_Q4_K,    GGML_TYPE_Q5_K,   GGML_TYPE_Q6_K,  GGML_TYPE_IQ1_S, GGML_TYPE_IQ1_M,
    GGML_TYPE_IQ2_XXS, GGML_TYPE_IQ2_XS, GGML_TYPE_IQ2_S, GGML_TYPE_IQ3_S, GGML_TYPE_IQ3_XXS,
    GGML_TYPE_IQ4_NL,  GGML_TYPE_IQ4_XS, GGML_TYPE_MXFP4, GGML_TYPE_TQ1_0, GGML_TYPE_TQ2_0,
    GGML_TYPE_Q1_0,    GGML_TYPE_Q2_0,
};

std::string MatrixTypeNames() {
  std::string list;
  for (const ggml_type type : kMatrixTypes) {
    if (!list.empty()) list += ", ";
    list += ggml_type_name(type);
  }
  return list;
}

using Shape = std::array<int64_t, 4>;

std::string ShapeText(const Shape& ne) {
  std::string text = Format("[{}", ne[0]);
  size_t last = ne.size() - 1;
  while (last > 0 && ne[last] == 1) --last;
  for (size_t d = 1; d <= last; ++d) text += Format(", {}", ne[d]);
  return text + "]";
}

// Looks tensors up, checks them, and remembers which ones have found a role.
class Reader {
 public:
  Reader(const GgufFile& file, const ModelSpec& spec, const Family& family)
      : file_(file), spec_(spec), family_(family) {}

  Status ReadModelRoles(ModelWeights& weights);
  Status ReadLayerRoles(uint32_t layer, LayerWeights& weights);
  Status CheckAttentionForm(uint32_t layer, const LayerWeights& w) const;
  Status ReadExperts(uint32_t layer, LayerExperts& experts);
  Status CheckAllUsed() const;

 private:
  std::unexpected<Error> Missing(const std::string& name) const {
    return Fail(Errc::kInvalidFile,
                "{}: tensor '{}' is missing for architecture {}; convert the model again",
                file_.paths().front(), name, spec_.arch_name);
  }
  Result<const TensorInfo*> ReadRole(const TensorRole& role, Presence presence,
                                     const std::string& name);
  Status Check(const TensorInfo& tensor, TensorKind kind, const Shape& shape);
  Result<ExpertMatrix> ReadMatrix(uint32_t layer, Matrix matrix);
  Result<ExpertMatrix> ReadSingles(uint32_t layer, Matrix matrix);
  Shape MatrixShape(Matrix matrix) const {
    if (matrix == Matrix::kDown) return {spec_.n_ff_expert, spec_.n_embd, 1, 1};
    return {spec_.n_embd, spec_.n_ff_expert, 1, 1};
  }

  const GgufFile& file_;
  const ModelSpec& spec_;
  const Family& family_;
  std::unordered_set<const TensorInfo*> used_;
};

// nullptr: the family does not have it, or the file does not and need not.
Result<const TensorInfo*> Reader::ReadRole(const TensorRole& role, Presence presence,
                                           const std::string& name) {
  if (presence == Presence::kNone) return nullptr;
  const TensorInfo* tensor = file_.Find(name);
  if (tensor == nullptr && presence == Presence::kRequired) return Missing(name);
  if (tensor == nullptr) return nullptr;
  const Shape shape{DimSize(role.ne0, spec_), DimSize(role.ne1, spec_), 1, 1};
  TRY_STATUS(Check(*tensor, role.kind, shape));
  return tensor;
}

Status Reader::ReadModelRoles(ModelWeights& weights) {
  Status status;
  const auto read = [&](const TensorRole& role, Presence presence, const TensorInfo*& tensor) {
    if (!status) return;
    auto found = ReadRole(role, presence, std::string(role.name));
    if (found) tensor = *found;
    if (!found) status = std::unexpected(std::move(found).error());
  };
  ForEachModelRole(read, family_.model_tensors, weights);
  return status;
}

Status Reader::ReadLayerRoles(uint32_t layer, LayerWeights& weights) {
  Status status;
  const LayerPart other = spec_.has_experts(layer) ? LayerPart::kDense : LayerPart::kExperts;
  const auto read = [&](const TensorRole& role, Presence presence, const TensorInfo*& tensor) {
    if (!status || role.part == other) return;
    auto found = ReadRole(role, presence, LayerTensorName(layer, role.name));
    if (found) tensor = *found;
    if (!found) status = std::unexpected(std::move(found).error());
  };
  ForEachLayerRole(read, family_.layer_tensors, weights);
  return status;
}

Status Reader::Check(const TensorInfo& tensor, TensorKind kind, const Shape& shape) {
  const std::string& path = file_.paths()[tensor.extent.file];
  if (tensor.ne != shape) {
    return Fail(Errc::kInvalidFile,
                "{}: tensor '{}' has shape {}, the metadata of this {} demands {}", path,
                tensor.name, ShapeText(tensor.ne), spec_.arch_name, ShapeText(shape));
  }
  if (kind == TensorKind::kVector && tensor.type != GGML_TYPE_F32) {
    return Fail(Errc::kUnsupported, "{}: tensor '{}' has type {}; norms and biases must be f32",
                path, tensor.name, ggml_type_name(tensor.type));
  }
  if (kind == TensorKind::kMatrix &&
      std::ranges::find(kMatrixTypes, tensor.type) == kMatrixTypes.end()) {
    return Fail(Errc::kUnsupported,
                "{}: tensor '{}' has type {}, which cannot be multiplied; supported are {}", path,
                tensor.name, ggml_type_name(tensor.type), MatrixTypeNames());
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
    if (!w.attn_v) return Missing(LayerTensorName(layer, "attn_v.weight"));
  }
  const bool single_bias = w.attn_q_b || w.attn_k_b || w.attn_v_b;
  if (fused ? single_bias : w.attn_qkv_b != nullptr) {
    return Fail(Errc::kInvalidFile,
                "{}: the biases of attention in layer {} do not match its weights",
                file_.paths().front(), layer);
  }
  return {};
}

// The E slices of one tensor: `parts` matrices follow one another in each expert, this is `part`.
ExpertMatrix Slices(const TensorInfo& tensor, const Shape& shape, uint64_t parts, uint64_t part) {
  const auto n_expert = static_cast<uint64_t>(tensor.ne[2]);
  ExpertMatrix matrix{.type = tensor.type,
                      .n_in = static_cast<uint32_t>(shape[0]),
                      .n_out = static_cast<uint32_t>(shape[1]),
                      .slice_bytes = tensor.extent.length / n_expert / parts,
                      .slices = {}};
  matrix.slices.reserve(n_expert);
  for (uint64_t e = 0; e < n_expert; ++e) {
    matrix.slices.push_back(
        {.file = tensor.extent.file,
         .offset = tensor.extent.offset + (e * parts + part) * matrix.slice_bytes,
         .length = matrix.slice_bytes});
  }
  return matrix;
}

Result<ExpertMatrix> Reader::ReadSingles(uint32_t layer, Matrix matrix) {
  const Shape shape = MatrixShape(matrix);
  ExpertMatrix result;
  for (uint32_t e = 0; e < spec_.router.n_expert; ++e) {
    const std::string name = SingleExpertName(layer, matrix, e);
    const TensorInfo* tensor = file_.Find(name);
    if (tensor == nullptr) return Missing(e == 0 ? MergedExpertsName(layer, matrix) : name);
    TRY_STATUS(Check(*tensor, TensorKind::kMatrix, shape));
    if (e > 0 && tensor->type != result.type) {
      return Fail(Errc::kUnsupported,
                  "{}: tensor '{}' has type {}, other experts of the layer have {}",
                  file_.paths()[tensor->extent.file], name, ggml_type_name(tensor->type),
                  ggml_type_name(result.type));
    }
    result.type = tensor->type;
    result.n_in = static_cast<uint32_t>(shape[0]);
    result.n_out = static_cast<uint32_t>(shape[1]);
    result.slice_bytes = tensor->extent.length;
    result.slices.push_back(tensor->extent);
  }
  return result;
}

Result<ExpertMatrix> Reader::ReadMatrix(uint32_t layer, Matrix matrix) {
  Shape shape = MatrixShape(matrix);
  shape[2] = spec_.router.n_expert;
  if (const TensorInfo* merged = file_.Find(MergedExpertsName(layer, matrix))) {
    TRY_STATUS(Check(*merged, TensorKind::kMatrix, shape));
    return Slices(*merged, shape, 1, 0);
  }
  const TensorInfo* fused = matrix == Matrix::kDown ? nullptr : file_.Find(FusedGateUpName(layer));
  if (fused == nullptr) return ReadSingles(layer, matrix);
  Shape both = shape;
  both[1] *= 2;
  TRY_STATUS(Check(*fused, TensorKind::kMatrix, both));
  return Slices(*fused, shape, 2, matrix == Matrix::kGate ? 0 : 1);
}

Status Reader::ReadExperts(uint32_t layer, LayerExperts& experts) {
  for (const Matrix matrix : {Matrix::kGate, Matrix::kUp, Matrix::kDown}) {
    TRY(experts.matrices[static_cast<size_t>(matrix)], ReadMatrix(layer, matrix));
  }
  return {};
}

// A tensor without a role means a model that does more than this architecture: running it without
// that tensor would give wrong text silently.
Status Reader::CheckAllUsed() const {
  for (const TensorInfo& tensor : file_.tensors()) {
    if (used_.contains(&tensor)) continue;
    return Fail(
        Errc::kUnsupported, "{}: tensor '{}' has no place in architecture {} with {} layers",
        file_.paths()[tensor.extent.file], Printable(tensor.name), spec_.arch_name, spec_.n_layer);
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
  TRY_STATUS(reader.ReadModelRoles(weights));
  if (weights.output == nullptr) weights.output = weights.token_embd;
  if ((weights.rope_factors_long == nullptr) != (weights.rope_factors_short == nullptr)) {
    return Fail(Errc::kInvalidFile,
                "{}: only one of rope_factors_long and rope_factors_short is present",
                file.paths().front());
  }
  for (uint32_t layer = 0; layer < spec.n_layer; ++layer) {
    LayerWeights w;
    TRY_STATUS(reader.ReadLayerRoles(layer, w));
    TRY_STATUS(reader.CheckAttentionForm(layer, w));
    if (spec.has_experts(layer)) TRY_STATUS(reader.ReadExperts(layer, w.experts));
    weights.layers.push_back(std::move(w));
  }
  TRY_STATUS(reader.CheckAllUsed());
  return weights;
}

std::vector<const TensorInfo*> ModelWeights::dense_tensors() const {
  std::vector<const TensorInfo*> tensors;
  std::unordered_set<const TensorInfo*> seen{nullptr};
  ForEachRole(
      [&](const TensorRole&, const TensorInfo* tensor) {
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

}  // namespace moestro
