// SPDX-License-Identifier: MIT
// The products of experts in a launch on a device. Used by local_transport.cc alone.
#pragma once

#include <ggml.h>

#include <algorithm>
#include <array>

#include "base/result.h"
#include "core/expert_catalog.h"
#include "core/model_spec.h"

namespace moestro {

// The tensors of experts on a device, and the activation between the matrices.
struct ExpertTensors {
  // Tensors of the pool, [n_in, n_out, slots]; null: experts of this form lack the matrix.
  std::array<ggml_tensor*, kMatrices> matrix{};
  std::array<ggml_tensor*, kMatrices> bias{};  // [n_out, experts]; null: the matrix has no bias
  Activation activation = Activation::kSwiglu;
  bool is_exact = false;  // as LaunchShape::is_exact

  bool has_bias() const {
    return std::ranges::any_of(bias, [](const ggml_tensor* t) { return t != nullptr; });
  }
};

// The slots and experts of the pairs, both [1, P], or [P, 1] for one row with different experts: a
// slot must not occur twice within one of ggml's rows.
struct PairIds {
  ggml_tensor* slots = nullptr;
  ggml_tensor* experts = nullptr;  // used only with biases
};

// down * activation(gate * x, up * x), with each matrix's bias added to its product: [n_embd] for
// each pair. x: [n_embd, 1, P], or [n_embd, 1, 1] for one row.
ggml_tensor* AddProducts(ggml_context* context, ggml_cgraph* graph, const ExpertTensors& tensors,
                         ggml_tensor* x, const PairIds& ids);

// Whether the activation has a form for `is_exact`.
bool HasExactForm(Activation activation);

}  // namespace moestro
