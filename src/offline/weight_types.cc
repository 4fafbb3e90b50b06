// SPDX-License-Identifier: MIT
#include "offline/weight_types.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <optional>
#include <span>

#include "base/text.h"
#include "model/file_checks.h"

namespace moestro {
namespace {

// Type that llama-quantize takes instead of a type of large blocks when a row is not a whole number
// of blocks.
ggml_type SmallerBlocks(ggml_type type) {
  switch (type) {
    case GGML_TYPE_Q2_K:
    case GGML_TYPE_Q3_K:
    case GGML_TYPE_TQ1_0:
    case GGML_TYPE_TQ2_0:
    case GGML_TYPE_Q1_0:
    case GGML_TYPE_Q2_0:
      return GGML_TYPE_Q4_0;
    case GGML_TYPE_IQ1_S:
    case GGML_TYPE_IQ1_M:
    case GGML_TYPE_IQ2_XXS:
    case GGML_TYPE_IQ2_XS:
    case GGML_TYPE_IQ2_S:
    case GGML_TYPE_IQ3_XXS:
    case GGML_TYPE_IQ3_S:
    case GGML_TYPE_IQ4_XS:
      return GGML_TYPE_IQ4_NL;
    case GGML_TYPE_Q4_K:
      return GGML_TYPE_Q5_0;
    case GGML_TYPE_Q5_K:
      return GGML_TYPE_Q5_1;
    case GGML_TYPE_Q6_K:
      return GGML_TYPE_Q8_0;
    default:
      return GGML_TYPE_F16;
  }
}

}  // namespace

std::string Uppercase(std::string_view text) {
  std::string upper(text);
  std::ranges::transform(upper, upper.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return upper;
}

Result<ggml_type> FindWeightType(std::string_view name) {
  const std::string wanted = Uppercase(name);
  for (const ggml_type type : MatrixTypes()) {
    if (Uppercase(ggml_type_name(type)) == wanted) return type;
  }
  return Fail(Errc::kUsage, "unknown weight type '{}'; known are {}", name, MatrixTypeNames());
}

ggml_type FittingType(ggml_type type, int64_t row) {
  while (row % ggml_blck_size(type) != 0) type = SmallerBlocks(type);
  return type;
}

namespace {

constexpr std::array<std::string_view, kMatrices> kMatrixWords{"gate", "up", "down"};

using LowTypeChoice = std::optional<ggml_type>;

// Parses one part between commas: a type for all matrices, or one for a named matrix.
Status ParseLowPart(std::string_view part, LowTypeChoice& all,
                    std::array<LowTypeChoice, kMatrices>& own) {
  const size_t equals = part.find('=');
  if (equals == std::string_view::npos) {
    if (all) return Fail(Errc::kUsage, "'{}' is a second type for all matrices", part);
    TRY(all, FindWeightType(part));
    return {};
  }
  const std::string_view word = part.substr(0, equals);
  const auto found = std::ranges::find(kMatrixWords, word);
  if (found == kMatrixWords.end()) {
    return Fail(Errc::kUsage, "'{}' is no expert matrix; they are gate, up and down", word);
  }
  LowTypeChoice& choice = own[static_cast<size_t>(found - kMatrixWords.begin())];
  if (choice) return Fail(Errc::kUsage, "'{}' has two types", word);
  TRY(choice, FindWeightType(part.substr(equals + 1)));
  return {};
}

}  // namespace

std::string LowTypes::text() const {
  std::string text;
  for (size_t m = 0; m < kMatrices; ++m) {
    if (types[m] == GGML_TYPE_COUNT) continue;
    text += Format("{}{}={}", text.empty() ? "" : ",", kMatrixWords[m], ggml_type_name(types[m]));
  }
  return text;
}

Result<LowTypes> ParseLowTypes(std::string_view text) {
  LowTypeChoice all;
  std::array<LowTypeChoice, kMatrices> own;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    TRY_STATUS(ParseLowPart(text.substr(begin, end - begin), all, own));
    begin = end + 1;
  }
  LowTypes low;
  for (size_t m = 0; m < kMatrices; ++m) {
    const bool may_lack = static_cast<Matrix>(m) == Matrix::kGate;
    if (!own[m] && !all && !may_lack) {
      return Fail(Errc::kUsage, "'{}' has no type in '{}'", kMatrixWords[m], text);
    }
    low.types[m] = own[m] ? *own[m] : all.value_or(GGML_TYPE_COUNT);
  }
  return low;
}

namespace {

// The largest value of F16. Larger weights are damage, and ggml's searches for a scale would
// overflow.
constexpr float kLargestWeight = 65504.0F;

Status CheckWeights(const WeightRows& rows, std::span<const float> values) {
  const auto bad = std::ranges::find_if(
      values, [](float v) { return !(std::abs(v) <= kLargestWeight); });  // NaN too
  if (bad == values.end()) return {};
  return Fail(Errc::kInvalidFile,
              "tensor '{}' holds {}{}, which is no weight; fetch the model again", rows.tensor,
              *bad, rows.expert ? Format(" in expert {}", *rows.expert) : "");
}

}  // namespace

Result<std::vector<float>> ReadWeightRows(const ExtentReader& reader, const WeightRows& rows) {
  TRY(const ExtentBytes read, reader.Read(rows.where));
  const uint64_t n = rows.where.length / ggml_row_size(rows.type, rows.width);
  std::vector<float> values(n * static_cast<uint64_t>(rows.width));
  if (rows.type == GGML_TYPE_F32) {
    std::memcpy(values.data(), read.bytes.data(), read.bytes.size());
  } else {
    ggml_get_type_traits(rows.type)->to_float(read.bytes.data(), values.data(),
                                              static_cast<int64_t>(values.size()));
  }
  TRY_STATUS(CheckWeights(rows, values));
  return values;
}

Result<std::vector<std::byte>> Requantize(const ExtentReader& reader, const WeightRows& rows,
                                          ggml_type to, const float* columns) {
  TRY(const std::vector<float> values, ReadWeightRows(reader, rows));
  const auto n = static_cast<int64_t>(values.size()) / rows.width;
  std::vector<std::byte> bytes(ggml_row_size(to, rows.width) * static_cast<size_t>(n));
  ggml_quantize_chunk(to, values.data(), bytes.data(), 0, n, rows.width, columns);
  return bytes;
}

Status CheckFits(ggml_type type, int64_t width, std::string_view tensor, bool has_imatrix) {
  if (width % ggml_blck_size(type) != 0) {
    return Fail(
        Errc::kInvalidRequest,
        "rows of {} values of tensor '{}' are no whole number of {}'s blocks of {}; {} fits "
        "them",
        width, tensor, ggml_type_name(type), ggml_blck_size(type),
        ggml_type_name(FittingType(type, width)));
  }
  if (!has_imatrix && ggml_quantize_requires_imatrix(type)) {
    return Fail(Errc::kInvalidRequest,
                "{} of tensor '{}' is useless without importances; make them with 'moestro "
                "imatrix' and give --imatrix FILE",
                ggml_type_name(type), tensor);
  }
  return {};
}

}  // namespace moestro
