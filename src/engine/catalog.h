// SPDX-License-Identifier: MIT
// From the file's tensors to what residency and the kernels need.
#pragma once

#include <vector>

#include "base/result.h"
#include "core/expert_catalog.h"
#include "engine/expert_exec.h"
#include "model/weights.h"

namespace moestro {

// One copy of every expert: the model's own.
ExpertCatalog MakeCatalog(const ModelWeights& weights);

// One entry per form of the catalog. kUnsupported for a type without a kernel.
Result<std::vector<FormKernels>> FindFormKernels(const ExpertCatalog& catalog, bool own_kernels);

}  // namespace moestro
