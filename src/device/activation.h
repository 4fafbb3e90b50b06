// SPDX-License-Identifier: MIT
// Joins the gate and the up projection of a routed expert. Pure; any thread.
#pragma once

#include <span>

#include "core/model_spec.h"

namespace moestro {

// Constants of Activation::kSwigluOai.
inline constexpr float kOaiAlpha = 1.702F;
inline constexpr float kOaiLimit = 7.0F;

// gate[i] = activation(gate[i], up[i]). REQUIRES: equal sizes. Without a gate (HasGate()) both may
// be the same values.
void Join(Activation activation, std::span<const float> up, std::span<float> gate);

}  // namespace moestro
