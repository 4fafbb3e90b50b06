// SPDX-License-Identifier: MIT
// The kernels that work everywhere: ggml's own dot product with software prefetch, and a slow one
// that dequantises, for plug-ins that do not export their dot products.
#pragma once

#include <optional>

#include "device/cpu_device.h"
#include "device/expert_kernel.h"

namespace moestro {

// nullopt if ggml's CPU backend has no dot product for `type`.
std::optional<ExpertKernel> GenericKernel(ggml_type type, const CpuTraits& traits);

// Float activations, weights through ggml's to_float. nullopt if ggml-base cannot dequantise
// `type`.
std::optional<ExpertKernel> DequantisingKernel(ggml_type type);

}  // namespace moestro
