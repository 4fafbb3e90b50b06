// SPDX-License-Identifier: MIT
// Turns the user's budget into slots: measures what the process already takes, asks decide/budget
// for the split, and writes down where everything goes.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "core/expert_catalog.h"
#include "core/model_spec.h"
#include "engine/engine_options.h"

namespace moestro {

struct WorkBytes {
  uint64_t step = 0;
  uint64_t graph = 0;
  uint64_t experts = 0;
  uint64_t staging = 0;  // while loading only, when the slots are still empty
};

struct PlannedMemory {
  MemoryPlan plan;
  std::vector<uint64_t> slots;  // per pool of the catalog
};

// kInvalidRequest when the budget does not hold one token's work.
Result<PlannedMemory> PlanMemory(const EngineOptions& options, const ModelSpec& spec,
                                 const ExpertCatalog& catalog, uint64_t block, uint32_t n_ctx,
                                 uint32_t chunk, uint64_t dense_bytes, const WorkBytes& work);

}  // namespace moestro
