// SPDX-License-Identifier: MIT
// From the file's tensors to what residency and the kernels need.
#pragma once

#include <vector>

#include "base/result.h"
#include "core/expert_catalog.h"
#include "core/extent.h"
#include "forward/dense/tensors.h"
#include "forward/experts/expert_exec.h"
#include "model/low_copies.h"
#include "model/weights.h"

namespace moestro {

// One copy of every expert: the model's own. Layers with experts only, here and below.
ExpertCatalog MakeCatalog(const ModelWeights& weights);

// Where the model's own copies lie.
std::vector<Extent> OwnSlices(const ExpertCatalog& catalog);

// A low copy of every expert. `first_file`: of the low copies, in the reader's list of files.
// REQUIRES: they were opened for the model of the catalog.
void AddLowCopies(const LowCopies& low, uint32_t first_file, ExpertCatalog& catalog);

// One entry per form of the catalog. kUnsupported for a type without a kernel.
Result<std::vector<FormKernels>> FindFormKernels(const ExpertCatalog& catalog, bool own_kernels);

// One entry per layer: what the model's family adds to the matrices. `tensors` stay the owner.
std::vector<LayerForm> LayerFormsOf(const ModelSpec& spec, const ModelTensors& tensors);

}  // namespace moestro
