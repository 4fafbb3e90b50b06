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

// Bytes that do not depend on the number of slots.
struct FixedBytes {
  uint64_t dense = 0;
  uint64_t kv = 0;
  uint64_t work = 0;     // for a step: activations, graph, experts, kernel scratch
  uint64_t staging = 0;  // while loading only, when the slots are still empty
};

// ggml's own scratch for products of `chunk` tokens: the converted activations of the widest row.
uint64_t MultiplyScratch(const ModelSpec& spec, uint32_t chunk);

struct PlannedMemory {
  MemoryPlan plan;
  std::vector<uint64_t> slots;  // per pool of the catalog
};

// `block` is the reader's alignment in bytes, `n_used` the router's top-k.
// kInvalidRequest when the budget does not hold one token's work.
Result<PlannedMemory> PlanMemory(const EngineOptions& options, const ExpertCatalog& catalog,
                                 uint64_t block, uint32_t n_used, const FixedBytes& fixed);

}  // namespace moestro
