// SPDX-License-Identifier: MIT
// What launches of experts on a device have in common. Used by device_experts alone.
#pragma once

#include <ggml.h>

#include <algorithm>
#include <array>

#include "base/result.h"
#include "core/expert_catalog.h"
#include "core/model_spec.h"
#include "device/devices.h"
#include "device/graph_arena.h"

namespace moestro {

// What experts are made of there. The activation is the one between their matrices.
struct ExpertTensors {
  std::array<ggml_tensor*, kMatrices> matrix{};  // of the pool, [n_in, n_out, slots]
  std::array<ggml_tensor*, kMatrices> bias{};    // [n_out, experts]; null: that matrix has none
  Activation activation = Activation::kSwiglu;

  bool has_bias() const {
    return std::ranges::any_of(bias, [](const ggml_tensor* t) { return t != nullptr; });
  }
};

// Which ones, both [1, P], or [P, 1] for one row, whose experts differ: no slot comes twice within
// one of ggml's rows.
struct PairIds {
  ggml_tensor* slots = nullptr;
  ggml_tensor* experts = nullptr;  // looked at only where there are biases
};

// down * activation(gate * x, up * x), to each product its bias: [n_embd] for each pair. x:
// [n_embd, 1, P], or [n_embd, 1, 1] for one row.
ggml_tensor* AddProducts(ggml_context* context, ggml_cgraph* graph, const ExpertTensors& tensors,
                         ggml_tensor* x, const PairIds& ids);

// kDevice, no room among others.
Status PlaceOn(const ComputeDevice& device, GraphArena& arena);

}  // namespace moestro
