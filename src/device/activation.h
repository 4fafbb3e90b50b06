// SPDX-License-Identifier: MIT
// Joins the gate and the up projection of an expert, on the CPU or in a graph. Pure; any thread.
#pragma once

#include <ggml.h>

#include <span>

#include "core/model_spec.h"

namespace moestro {

// Constants of Activation::kSwigluOai.
inline constexpr float kOaiAlpha = 1.702F;
inline constexpr float kOaiLimit = 7.0F;

// gate[i] = activation(gate[i], up[i]). REQUIRES: equal sizes. Without a gate (HasGate()) both may
// be the same values.
void Join(Activation activation, std::span<const float> up, std::span<float> gate);

// The same in a graph: a node for activation(gate, up). gate: not used if the activation has none.
ggml_tensor* Activate(ggml_context* ctx, Activation activation, ggml_tensor* gate, ggml_tensor* up);

}  // namespace moestro
