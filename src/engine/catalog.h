// SPDX-License-Identifier: MIT
// From the file's tensors to what residency and the kernels need.
#pragma once

#include <span>
#include <vector>

#include "base/result.h"
#include "core/expert_catalog.h"
#include "core/model_spec.h"
#include "engine/expert_exec.h"
#include "model/weights.h"

namespace moestro {

ExpertCatalog MakeCatalog(const ModelWeights& weights);

// One entry per layer. kUnsupported for a type without a kernel.
Result<std::vector<LayerKernels>> FindLayerKernels(const ModelWeights& weights, bool own_kernels);

ExpertExec::Limits ExecLimits(const ModelSpec& spec, std::span<const LayerKernels> kernels,
                              uint32_t chunk);

}  // namespace moestro
