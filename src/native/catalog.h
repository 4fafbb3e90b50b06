// SPDX-License-Identifier: MIT
// Makes from the file's tensors what residency and the kernels need.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "core/expert_catalog.h"
#include "core/expert_pools.h"
#include "core/extent.h"
#include "core/ids.h"
#include "forward/dense/tensors.h"
#include "forward/experts/expert_exec.h"
#include "model/low_copies.h"
#include "model/weights.h"

namespace moestro {

// One copy of every expert: the model's own. Layers with experts only, here and below.
ExpertCatalog MakeCatalog(const ModelWeights& weights);

// The places of the model's own copies in the files.
std::vector<Extent> OwnSlices(const ExpertCatalog& catalog);

// A low copy of every expert. `first_file`: index of the low copies' first file in the reader's
// list of files. REQUIRES: they were opened for the model of the catalog.
void AddLowCopies(const LowCopies& low, uint32_t first_file, ExpertCatalog& catalog);

// Copies of experts, [form].
std::vector<uint64_t> CopiesByForm(const ExpertCatalog& catalog);

// Some expert with a copy of that form. kUnsupported: there is none.
Result<ExpertKey> AnyExpertOf(const ExpertCatalog& catalog, uint32_t form);

// The bytes of the expert's matrices.
uint64_t BytesOf(const ExpertCatalog& catalog, ExpertKey key);

// Pools of the model's own copies. slots: slots of each pool of the catalog.
ExpertPools PoolsOfOwnCopies(const ExpertCatalog& catalog, std::span<const uint64_t> slots);

// One entry per form of the catalog. kUnsupported for a type without a kernel.
Result<std::vector<FormKernels>> FindFormKernels(const ExpertCatalog& catalog, bool own_kernels);

// One entry per layer: what the model's family adds to the matrices. `tensors` still own the data.
std::vector<LayerForm> LayerFormsOf(const ModelSpec& spec, const ModelTensors& tensors);

}  // namespace moestro
