// SPDX-License-Identifier: MIT
// The resident weights of a model as ggml tensors, by role; null where a model has none.
#pragma once

#include "core/tensor_roles.h"

struct ggml_tensor;  // NOLINT(readability-identifier-naming): the name is ggml's

namespace moestro {

using LayerTensors = LayerRoles<ggml_tensor*>;
using ModelTensors = ModelTree<ggml_tensor*>;

}  // namespace moestro
