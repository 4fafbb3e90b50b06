// SPDX-License-Identifier: MIT
// Checks of tensors before their use. Pure functions.
#pragma once

#include <ggml.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "model/gguf_file.h"

namespace moestro {

using TensorShape = std::array<int64_t, 4>;  // ggml's order: values in a row first

// The types that a weight matrix may have, in no order.
std::span<const ggml_type> MatrixTypes();
std::string MatrixTypeNames();  // "f32, f16, q4_0"

// kInvalidFile, with both shapes. `tensor` belongs to `file`; `arch`: the model's architecture.
Status CheckTensorShape(const GgufFile& file, const TensorInfo& tensor, const TensorShape& shape,
                        std::string_view arch);
// kUnsupported unless the tensor's type is one of MatrixTypes().
Status CheckMatrixType(const GgufFile& file, const TensorInfo& tensor);

}  // namespace moestro
