// SPDX-License-Identifier: MIT
// Types of weight matrices by name, and the types that fit a row. Pure functions.
#pragma once

#include <ggml.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/extent.h"
#include "core/ids.h"
#include "store/open_files.h"

namespace moestro {

std::string Uppercase(std::string_view text);  // ASCII letters

// A type by ggml's name, in any case: "q4_K". Fails with kUsage; the message lists the names.
Result<ggml_type> FindWeightType(std::string_view name);

// `type`, or where a row of `row` values is no whole number of its blocks the next type that fits,
// as llama-quantize chooses it.
ggml_type FittingType(ggml_type type, int64_t row);

// Types at which the kinds of expert matrices are written. Plain values.

struct LowTypes {
  // Types by Matrix; GGML_TYPE_COUNT, of gate only: not named, or no gate matrix.
  std::array<ggml_type, kMatrices> types{};
  ggml_type operator[](Matrix m) const { return types[static_cast<size_t>(m)]; }
  std::string text() const;  // "gate=q2_K,up=q2_K,down=q3_K"
};

// "q2_k" for all three, "gate=q2_k,up=q2_k,down=q3_k", or "q2_k,down=q3_k". Only gate may be left
// out, which some models' experts lack. Fails with kUsage.
Result<LowTypes> ParseLowTypes(std::string_view text);

// Rows of a weight matrix at another type: read, dequantised to F32, checked, quantised by
// ggml_quantize_chunk. Used by quantize.h, write_fitted.h and convert.h.

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
