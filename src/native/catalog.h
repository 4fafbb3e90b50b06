// SPDX-License-Identifier: MIT
// Makes from the file's tensors what residency and the kernels need.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "core/expert_catalog.h"
#include "core/extent.h"
#include "core/ids.h"
#include "forward/dense/blocks.h"
#include "forward/experts/expert_exec.h"
#include "model/low_copies.h"
#include "model/model_file.h"

namespace moestro {

// A catalog with one copy of every expert: the model's own. Layers are those with experts, in all
// functions of this file.
ExpertCatalog MakeCatalog(const ModelWeights& weights);

// Adds a low copy of every expert. `first_file`: index of the low copies' first file in the
// reader's list of files. REQUIRES: `low` was opened for the model of the catalog.
void AddLowCopies(const LowCopies& low, uint32_t first_file, ExpertCatalog& catalog);

// The bytes of the expert's matrices.
uint64_t BytesOf(const ExpertCatalog& catalog, ExpertKey key);

// One entry per form of the catalog. kUnsupported for a type without a kernel.
Result<std::vector<FormKernels>> FindFormKernels(const ExpertCatalog& catalog, bool own_kernels);

// One entry per layer: what the model's family adds to the matrices. `tensors` still own the data.
std::vector<LayerForm> LayerFormsOf(const ModelSpec& spec, const ModelTensors& tensors);

}  // namespace moestro
