// SPDX-License-Identifier: MIT
// Rows of a weight matrix at another type: read, dequantised to F32, checked, quantised by
// ggml_quantize_chunk. Used by quantize.h, write_fitted.h and convert.h.
#pragma once

#include <ggml.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/extent.h"
#include "store/extent_reader.h"

namespace moestro {

// Neighbouring rows of a matrix, for example of an expert's.
struct WeightRows {
  Extent where;
  ggml_type type = GGML_TYPE_F32;
  int64_t width = 0;        // values of a row
  std::string_view tensor;  // for messages
  std::optional<uint64_t> expert = {};
};

// Dequantised rows. kInvalidFile for values that are not weights; kIo.
Result<std::vector<float>> ReadWeightRows(const ExtentReader& reader, const WeightRows& rows);

// columns: importances of the columns, [width]; null: all equal. Any thread; ggml_quantize_init()
// has been called for `to`. Errors: those of ReadWeightRows().
Result<std::vector<std::byte>> Requantize(const ExtentReader& reader, const WeightRows& rows,
                                          ggml_type to, const float* columns);

// kInvalidRequest: rows of `width` values are no whole number of the type's blocks (names a type
// that fits), or the type needs importances and none are given.
Status CheckFits(ggml_type type, int64_t width, std::string_view tensor, bool has_imatrix);

}  // namespace moestro
