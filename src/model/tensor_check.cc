// SPDX-License-Identifier: MIT
#include "model/tensor_check.h"

#include <algorithm>

#include "base/format.h"

namespace moestro {
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
