// SPDX-License-Identifier: MIT
#include "forward/experts/device_products.h"

#include <cstddef>

#include "forward/dense/blocks.h"

namespace moestro {
ggml_tensor* AddProducts(ggml_context* context, ggml_cgraph* graph,
                         const std::array<ggml_tensor*, kMatrices>& matrix, Activation activation,
                         ggml_tensor* x, ggml_tensor* ids) {
  // Up before gate before what joins them: CUDA makes one kernel of the three then.
  ggml_tensor* up = ggml_mul_mat_id(context, matrix[static_cast<size_t>(Matrix::kUp)], x, ids);
  ggml_tensor* gate = ggml_mul_mat_id(context, matrix[static_cast<size_t>(Matrix::kGate)], x, ids);
  ggml_tensor* joined = GatedProduct(context, activation, gate, up);
  ggml_tensor* y =
      ggml_mul_mat_id(context, matrix[static_cast<size_t>(Matrix::kDown)], joined, ids);
  ggml_build_forward_expand(graph, up);
  ggml_build_forward_expand(graph, y);
  return y;
}

Status PlaceOn(const ComputeDevice& device, GraphArena& arena) {
  if (arena.Place()) return {};
  return Fail(Errc::kDevice, "the device {} has no room for a launch", device.info().name);
}

}  // namespace moestro
