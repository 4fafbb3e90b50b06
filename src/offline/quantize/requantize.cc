// SPDX-License-Identifier: MIT
#include "offline/quantize/requantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "base/format.h"
#include "offline/weight_types.h"

namespace moestro {
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
