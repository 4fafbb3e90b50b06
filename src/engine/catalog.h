// SPDX-License-Identifier: MIT
// From the file's tensors to what residency and the kernels need.
#pragma once

#include <span>
#include <vector>

#include "base/result.h"
#include "core/expert_catalog.h"
#include "core/model_spec.h"
#include "engine/expert_exec.h"
#include "graph/tensors.h"
#include "model/weights.h"

namespace moestro {

// Layers with experts only, here and below.
ExpertCatalog MakeCatalog(const ModelWeights& weights);

// One entry per layer. kUnsupported for a type without a kernel.
Result<std::vector<LayerKernels>> FindLayerKernels(const ModelWeights& weights, bool own_kernels);

// What the model's family adds to the matrices: activation and biases, of which `tensors` stay the
// owner.
void AddForm(const ModelSpec& spec, const ModelTensors& tensors, std::span<LayerKernels> kernels);

ExpertExec::Limits ExecLimits(const ModelSpec& spec, std::span<const LayerKernels> kernels,
                              uint32_t chunk);

}  // namespace moestro
