// SPDX-License-Identifier: MIT
#include "offline/weight_types.h"

#include <algorithm>
#include <cctype>

#include "model/tensor_check.h"

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

}  // namespace moestro
