// SPDX-License-Identifier: MIT
#include "devices/device_products.h"

#include <cstddef>

#include "compute/product_node.h"

namespace moestro {
namespace {

// Repeats compute/product_node.cc operation by operation: gate / (1 + exp(-gate)) * up. Each
// operation rounds once, as in C, and exp is the C library's.
ggml_tensor* ActivateExactly(ggml_context* context, Activation activation, ggml_tensor* gate,
                             ggml_tensor* up) {
  if (activation == Activation::kReluSquared) return ggml_sqr(context, ggml_relu(context, up));
  if (activation == Activation::kRelu) return ggml_relu(context, up);
  ggml_tensor* power = ggml_exp(context, ggml_neg(context, gate));
  ggml_tensor* divisor = ggml_scale_bias(context, power, 1.0F, 1.0F);
  return ggml_mul(context, ggml_div(context, gate, divisor), up);
}

}  // namespace

bool HasExactForm(Activation activation) {
  return activation == Activation::kSwiglu || !HasGate(activation);
}

ggml_tensor* AddProducts(ggml_context* context, ggml_cgraph* graph, const ExpertTensors& tensors,
                         ggml_tensor* x, const PairIds& ids) {
  const auto product = [&](Matrix matrix, ggml_tensor* in) {
    const auto m = static_cast<size_t>(matrix);
    ggml_tensor* out = ggml_mul_mat_id(context, tensors.matrix[m], in, ids.slots);
    if (tensors.bias[m] == nullptr) return out;
    return ggml_add_id(context, out, tensors.bias[m], ids.experts);
  };
  // Order: up, gate, then the activation, of which CUDA makes one kernel.
  ggml_tensor* up = product(Matrix::kUp, x);
  ggml_tensor* gate = HasGate(tensors.activation) ? product(Matrix::kGate, x) : nullptr;
  ggml_tensor* joined = tensors.is_exact ? ActivateExactly(context, tensors.activation, gate, up)
                                         : Activate(context, tensors.activation, gate, up);
  ggml_tensor* y = product(Matrix::kDown, joined);
  ggml_build_forward_expand(graph, up);
  ggml_build_forward_expand(graph, y);
  return y;
}

}  // namespace moestro
