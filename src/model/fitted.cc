// SPDX-License-Identifier: MIT
#include "model/fitted.h"

#include <array>
#include <utility>

#include "base/printable.h"
#include "model/fingerprint.h"
#include "model/tensor_check.h"
#include "model/tensor_names.h"

namespace moestro {
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
