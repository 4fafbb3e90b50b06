// SPDX-License-Identifier: MIT
#include "model/meta_keys.h"

#include <cmath>

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

}  // namespace moestro
