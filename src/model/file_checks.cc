// SPDX-License-Identifier: MIT
#include "model/file_checks.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"

namespace moestro {

Result<std::optional<uint32_t>> MetaKeys::FindCount(std::string_view key, Range range) const {
  TRY(const auto value, file_.FindUniformUint(Full(key)));
  if (!value) return std::nullopt;
  if (*value < range.min || *value > range.max) {
    return Fail(Errc::kInvalidFile, "{}: {} is {}, expected {} to {}", path(), Full(key), *value,
                range.min, range.max);
  }
  return static_cast<uint32_t>(*value);
}

Result<uint32_t> MetaKeys::Count(std::string_view key, Range range) const {
  TRY(const auto value, FindCount(key, range));
  if (value) return *value;
  return Fail(Errc::kInvalidFile, "{}: metadata '{}' is missing; convert the model again", path(),
              Full(key));
}

Result<uint32_t> MetaKeys::CountOr(std::string_view key, Range range, uint64_t fallback) const {
  TRY(const auto value, FindCount(key, range));
  if (value) return *value;
  if (fallback >= range.min && fallback <= range.max) return static_cast<uint32_t>(fallback);
  return Fail(Errc::kInvalidFile, "{}: '{}' is missing and its default {} is not within {} to {}",
              path(), Full(key), fallback, range.min, range.max);
}

Result<std::vector<uint32_t>> MetaKeys::Counts(std::string_view key, Range range, uint32_t n,
                                               uint32_t n_first) const {
  if (!IsArray(key)) {
    TRY(const uint32_t count, Count(key, range));
    return std::vector(n, count);
  }
  const MetaValue* const array = file_.FindValue(Full(key));
  const bool is_of_first = n_first > 0 && array->count == n_first;
  TRY(const std::vector<uint64_t> values, file_.ArrayOfUints(Full(key), is_of_first ? n_first : n));
  std::vector<uint32_t> counts;
  for (const uint64_t value : values) {
    if (value < range.min || value > range.max) {
      return Fail(Errc::kInvalidFile, "{}: {} is {} in layer {}, expected {} to {}", path(),
                  Full(key), value, counts.size(), range.min, range.max);
    }
    counts.push_back(static_cast<uint32_t>(value));
  }
  if (is_of_first) counts.resize(n, counts.back());
  return counts;
}

bool MetaKeys::Has(std::string_view key) const { return file_.FindValue(Full(key)) != nullptr; }

bool MetaKeys::IsArray(std::string_view key) const {
  const MetaValue* value = file_.FindValue(Full(key));
  return value != nullptr && value->is_array;
}

Result<std::optional<float>> MetaKeys::FindFactor(std::string_view key) const {
  TRY(const auto value, file_.FindFloat(Full(key)));
  if (!value) return std::nullopt;
  const auto factor = static_cast<float>(*value);
  if (std::isfinite(factor) && factor >= 0.0F) return factor;
  return Fail(Errc::kInvalidFile, "{}: {} is {}, expected a number of at least 0", path(),
              Full(key), *value);
}

Result<std::vector<float>> MetaKeys::Factors(std::string_view key, uint32_t n,
                                             uint32_t n_first) const {
  if (!IsArray(key)) {
    TRY(const auto factor, FindFactor(key));
    return std::vector(n_first, factor.value_or(0.0F));
  }
  const MetaValue& array = *file_.FindValue(Full(key));
  if (array.count != n && array.count != n_first) {
    return Fail(Errc::kInvalidFile, "{}: '{}' has {} values for {} layers", path(), Full(key),
                array.count, n);
  }
  std::vector<float> factors;
  for (uint32_t i = 0; i < n_first; ++i) {
    const auto factor = static_cast<float>(array.FloatAt(i).value_or(-1.0));
    if (!std::isfinite(factor) || factor < 0.0F) {
      return Fail(Errc::kInvalidFile, "{}: {} has no number of at least 0 in layer {}", path(),
                  Full(key), i);
    }
    factors.push_back(factor);
  }
  return factors;
}

namespace {

// Types with a dot product and a row conversion in ggml's CPU backend. NVFP4 is left out: files of
// that type carry scales in separate tensors, which no graph here applies.
constexpr std::array kMatrixTypes{
    GGML_TYPE_F32,     GGML_TYPE_F16,    GGML_TYPE_BF16,  GGML_TYPE_Q4_0,  GGML_TYPE_Q4_1,
    GGML_TYPE_Q5_0,    GGML_TYPE_Q5_1,   GGML_TYPE_Q8_0,  GGML_TYPE_Q2_K,  GGML_TYPE_Q3_K,
    GGML_TYPE_Q4_K,    GGML_TYPE_Q5_K,   GGML_TYPE_Q6_K,  GGML_TYPE_IQ1_S, GGML_TYPE_IQ1_M,
    GGML_TYPE_IQ2_XXS, GGML_TYPE_IQ2_XS, GGML_TYPE_IQ2_S, GGML_TYPE_IQ3_S, GGML_TYPE_IQ3_XXS,
    GGML_TYPE_IQ4_NL,  GGML_TYPE_IQ4_XS, GGML_TYPE_MXFP4, GGML_TYPE_TQ1_0, GGML_TYPE_TQ2_0,
    GGML_TYPE_Q1_0,    GGML_TYPE_Q2_0,
};

std::string ShapeText(const TensorShape& ne) {
  std::string text = Format("[{}", ne[0]);
  size_t last = ne.size() - 1;
  while (last > 0 && ne[last] == 1) --last;
  for (size_t d = 1; d <= last; ++d) text += Format(", {}", ne[d]);
  return text + "]";
}

}  // namespace

std::span<const ggml_type> MatrixTypes() { return kMatrixTypes; }

std::string MatrixTypeNames() {
  std::string list;
  for (const ggml_type type : kMatrixTypes) {
    if (!list.empty()) list += ", ";
    list += ggml_type_name(type);
  }
  return list;
}

Status CheckTensorShape(const GgufFile& file, const TensorInfo& tensor, const TensorShape& shape,
                        std::string_view arch) {
  if (tensor.ne == shape) return {};
  return Fail(
      Errc::kInvalidFile, "{}: tensor '{}' has shape {}, the metadata of this {} demands {}",
      file.paths()[tensor.extent.file], tensor.name, ShapeText(tensor.ne), arch, ShapeText(shape));
}

Status CheckMatrixType(const GgufFile& file, const TensorInfo& tensor) {
  if (std::ranges::contains(kMatrixTypes, tensor.type)) return {};
  return Fail(Errc::kUnsupported,
              "{}: tensor '{}' has type {}, which cannot be multiplied; supported are {}",
              file.paths()[tensor.extent.file], tensor.name, ggml_type_name(tensor.type),
              MatrixTypeNames());
}

}  // namespace moestro
