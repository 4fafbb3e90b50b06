// SPDX-License-Identifier: MIT
#include "model/expert_tensors.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "base/terminal.h"
#include "model/file_checks.h"
#include "model/gguf_file.h"
#include "model/tensor_names.h"

namespace moestro {
namespace {

// Collects the tensors of one layer.
class ExpertFinder {
 public:
  ExpertFinder(const GgufFile& file, const ModelSpec& spec, uint32_t layer, std::string_view remedy)
      : file_(file), spec_(spec), layer_(layer), remedy_(remedy) {}

  Result<std::vector<ExpertTensor>> Find();

 private:
  Status Add(const ExpertTensor& tensor);
  Status AddMatrix(Matrix matrix);
  Status AddSingles(Matrix matrix);
  const TensorInfo* merged(Matrix matrix) const {
    return file_.Find(MergedExpertsName(layer_, matrix));
  }

  const GgufFile& file_;
  const ModelSpec& spec_;
  uint32_t layer_;
  std::string_view remedy_;
  std::vector<ExpertTensor> found_;
};

Status ExpertFinder::Add(const ExpertTensor& tensor) {
  TensorShape shape = ExpertShape(spec_, layer_, tensor.matrix, tensor.n_experts);
  if (tensor.is_fused) shape[1] *= 2;
  TRY_STATUS(CheckTensorShape(file_, *tensor.info, shape, spec_.arch_name));
  TRY_STATUS(CheckMatrixType(file_, *tensor.info));
  found_.push_back(tensor);
  return {};
}

Status ExpertFinder::AddSingles(Matrix matrix) {
  for (uint32_t e = 0; e < spec_.router.n_expert; ++e) {
    const std::string name = SingleExpertName(layer_, matrix, e);
    const TensorInfo* info = file_.Find(name);
    if (info == nullptr) {
      return Fail(Errc::kInvalidFile, "{}: tensor '{}' is missing for architecture {}; {}",
                  file_.paths().front(), e == 0 ? MergedExpertsName(layer_, matrix) : name,
                  spec_.arch_name, remedy_);
    }
    TRY_STATUS(Add({.info = info, .matrix = matrix, .first_expert = e}));
    const ggml_type first = found_[found_.size() - 1 - e].info->type;
    if (info->type != first) {
      return Fail(Errc::kUnsupported,
                  "{}: tensor '{}' has type {}, other experts of the layer have {}",
                  file_.paths()[info->extent.file], name, ggml_type_name(info->type),
                  ggml_type_name(first));
    }
  }
  return {};
}

Status ExpertFinder::AddMatrix(Matrix matrix) {
  const TensorInfo* info = merged(matrix);
  if (info == nullptr) return AddSingles(matrix);
  return Add({.info = info, .matrix = matrix, .n_experts = spec_.router.n_expert});
}

Result<std::vector<ExpertTensor>> ExpertFinder::Find() {
  if (!HasGate(spec_.experts.activation)) {
    TRY_STATUS(AddMatrix(Matrix::kUp));
    TRY_STATUS(AddMatrix(Matrix::kDown));
    return std::move(found_);
  }
  const TensorInfo* fused = file_.Find(FusedGateUpName(layer_));
  if (fused != nullptr && merged(Matrix::kGate) == nullptr && merged(Matrix::kUp) == nullptr) {
    TRY_STATUS(Add({.info = fused, .is_fused = true, .n_experts = spec_.router.n_expert}));
  } else {
    TRY_STATUS(AddMatrix(Matrix::kGate));
    TRY_STATUS(AddMatrix(Matrix::kUp));
  }
  TRY_STATUS(AddMatrix(Matrix::kDown));
  return std::move(found_);
}

}  // namespace

uint64_t LayerExperts::bytes() const {
  uint64_t bytes = 0;
  for (const ExpertMatrix& matrix : matrices) {
    for (const Extent& slice : matrix.slices) bytes += slice.length;
  }
  return bytes;
}

TensorShape ExpertShape(const ModelSpec& spec, uint32_t layer, Matrix matrix, uint32_t n) {
  const FeedForwardSpec& its = spec.layers[layer].feed_forward;
  const int64_t width = its.n_latent > 0 ? its.n_latent : spec.n_embd;
  TensorShape shape{width, its.n_ff_expert, n, 1};
  if (matrix == Matrix::kDown) std::swap(shape[0], shape[1]);
  return shape;
}

Result<std::vector<ExpertTensor>> FindExpertTensors(const GgufFile& file, const ModelSpec& spec,
                                                    uint32_t layer, std::string_view remedy) {
  return ExpertFinder(file, spec, layer, remedy).Find();
}

LayerExperts SliceExperts(std::span<const ExpertTensor> tensors) {
  LayerExperts experts;
  // In each expert `parts` matrices follow one another, `matrix` is number `part`.
  const auto slice = [&](const ExpertTensor& tensor, Matrix m, uint32_t parts, uint32_t part) {
    const TensorInfo& info = *tensor.info;
    ExpertMatrix& matrix = experts.matrices[static_cast<size_t>(m)];
    const uint64_t slice_bytes = info.extent.length / tensor.n_experts / parts;
    matrix.n_in = static_cast<uint32_t>(info.ne[0]);
    matrix.n_out = static_cast<uint32_t>(info.ne[1]) / parts;
    for (uint64_t e = 0; e < tensor.n_experts; ++e) {
      const size_t id = tensor.ids.empty() ? tensor.first_expert + e : tensor.ids[e];
      matrix.types.resize(std::max(matrix.types.size(), id + 1));
      matrix.slices.resize(matrix.types.size());
      matrix.types[id] = info.type;
      matrix.slices[id] = {.file = info.extent.file,
                           .offset = info.extent.offset + (e * parts + part) * slice_bytes,
                           .length = slice_bytes};
    }
  };
  for (const ExpertTensor& tensor : tensors) {
    slice(tensor, tensor.matrix, tensor.is_fused ? 2 : 1, 0);
    if (tensor.is_fused) slice(tensor, Matrix::kUp, 2, 1);
    experts.is_fused = experts.is_fused || tensor.is_fused;
  }
  return experts;
}

namespace {

constexpr std::string_view kFitAgain = "make it again with 'moestro fit'";

Result<std::string> FitText(const GgufFile& file, const char* key) {
  TRY(auto text, file.FindString(key));
  if (text) return *std::move(text);
  return Fail(Errc::kInvalidFile, "{}: a fitted model without the key '{}'; {}",
              file.paths().front(), key, kFitAgain);
}

Result<std::optional<uint64_t>> FitWeights(const GgufFile& file) {
  TRY(const auto text, file.FindString(kFitWeightsKey));
  if (!text) return std::optional<uint64_t>();
  const auto weights = ParseFingerprint(*text);
  if (weights) return weights;
  return Fail(Errc::kInvalidFile, "{}: '{}' is '{}', expected 16 hex digits; {}",
              file.paths().front(), kFitWeightsKey, Printable(*text), kFitAgain);
}

Status CheckFitWidths(const GgufFile& file, const ModelSpec& spec, std::string_view widths) {
  const size_t experts = size_t{spec.n_expert_layers()} * spec.router.n_expert;
  if (widths.size() != experts) {
    return Fail(Errc::kInvalidFile, "{}: '{}' holds {} widths for {} layers of {} experts; {}",
                file.paths().front(), kFitWidthKey, widths.size(), spec.n_expert_layers(),
                spec.router.n_expert, kFitAgain);
  }
  const size_t bad = widths.find_first_not_of("01");
  if (bad == std::string_view::npos) return {};
  return Fail(Errc::kInvalidFile, "{}: '{}' holds '{}' at {}, expected 0 or 1; {}",
              file.paths().front(), kFitWidthKey, Printable(widths.substr(bad, 1)), bad, kFitAgain);
}

}  // namespace

Result<std::optional<FitHeader>> ReadFitHeader(const GgufFile& file, const ModelSpec& spec) {
  const std::string& path = file.paths().front();
  TRY(const auto version, file.FindUint(kFitVersionKey));
  if (!version) return std::optional<FitHeader>();
  if (*version != kFitVersion) {
    return Fail(Errc::kUnsupported,
                "{}: a fitted model of version {}, known is {}; use a newer moestro, or {}", path,
                *version, kFitVersion, kFitAgain);
  }
  FitHeader fit;
  TRY(fit.source_name, FitText(file, kFitNameKey));
  TRY(const std::string text, FitText(file, kFitFingerprintKey));
  const auto fingerprint = ParseFingerprint(text);
  if (!fingerprint) {
    return Fail(Errc::kInvalidFile, "{}: '{}' is '{}', expected 16 hex digits; {}", path,
                kFitFingerprintKey, Printable(text), kFitAgain);
  }
  fit.source_fingerprint = *fingerprint;
  TRY(fit.source_weights, FitWeights(file));
  TRY(fit.widths, FitText(file, kFitWidthKey));
  TRY_STATUS(CheckFitWidths(file, spec, fit.widths));
  return std::optional(std::move(fit));
}

Result<std::vector<ExpertTensor>> FindFittedTensors(const GgufFile& file, const ModelSpec& spec,
                                                    uint32_t layer, const FitHeader& fit) {
  const uint32_t n = spec.router.n_expert;
  const auto widths =
      std::string_view(fit.widths).substr(size_t{spec.expert_layers_before(layer)} * n, n);
  std::array<std::vector<uint32_t>, 2> ids;  // high, low
  for (uint32_t e = 0; e < n; ++e) ids[widths[e] == FitHeader::kLow ? 1 : 0].push_back(e);
  std::vector<ExpertTensor> tensors;
  for (const Matrix matrix : {Matrix::kGate, Matrix::kUp, Matrix::kDown}) {
    if (matrix == Matrix::kGate && !HasGate(spec.experts.activation)) continue;
    for (size_t w = 0; w < ids.size(); ++w) {
      if (ids[w].empty()) continue;
      const std::string name =
          w == 0 ? MergedExpertsName(layer, matrix) : LowExpertsName(layer, matrix);
      const TensorInfo* info = file.Find(name);
      if (info == nullptr) {
        return Fail(Errc::kInvalidFile,
                    "{}: '{}' has experts for tensor '{}', which is missing; {}",
                    file.paths().front(), kFitWidthKey, name, kFitAgain);
      }
      const auto in_tensor = static_cast<uint32_t>(ids[w].size());
      TRY_STATUS(CheckTensorShape(file, *info, ExpertShape(spec, layer, matrix, in_tensor),
                                  spec.arch_name));
      TRY_STATUS(CheckMatrixType(file, *info));
      tensors.push_back({.info = info,
                         .matrix = matrix,
                         .first_expert = ids[w].front(),
                         .n_experts = in_tensor,
                         .ids = ids[w]});
    }
  }
  return tensors;
}

Status CheckIsNotFitted(const std::optional<FitHeader>& fit, const std::string& path,
                        std::string_view what) {
  if (!fit) return {};
  return Fail(Errc::kInvalidRequest, "{} is a fitted model; {} its source {}", path, what,
              Printable(fit->source_name));
}

}  // namespace moestro
