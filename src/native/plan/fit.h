// SPDX-License-Identifier: MIT
// Finds the share of a model's experts that a memory budget holds, without loading the model.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "core/expert_catalog.h"
#include "core/kv_cells.h"
#include "core/model_spec.h"
#include "memory/layer_memory.h"
#include "model/model_file.h"

namespace moestro {

// Bytes that do not depend on the number of slots.
struct FixedMemory {
  uint64_t dense = 0;
  uint64_t kv = 0;
  uint64_t work = 0;
  uint64_t process = 0;
  uint64_t staging = 0;     // bytes while weights are read, in place of work and slots
  uint64_t least_work = 0;  // work with the chunk that a small budget gets; 0: as work
  uint64_t smallest = 0;    // the smallest budget that works, as an engine reports it; 0: estimated
};
// Estimates the bytes for n_ctx tokens, with keys and values of the type in `remembers`. An engine
// measures more exactly.
FixedMemory EstimateFixed(const ModelSpec& spec, uint64_t dense_bytes, uint32_t n_ctx,
                          const MemoryShape& remembers, uint32_t chunk);

struct Fit {
  uint64_t ram = 0;  // bytes of the whole process
  uint64_t slots = 0;
  uint64_t experts = 0;
  double share() const {
    return experts > 0 ? static_cast<double>(slots) / static_cast<double>(experts) : 0.0;
  }
};

// Experts that fit in a device's memory beside the buffers for computing, and beside the dense part
// if it fits.
struct DeviceFit {
  uint64_t vram = 0;
  uint64_t slots = 0;
  uint64_t experts = 0;
  bool has_dense = false;
};
// One entry for each usual size of memory, up to a size that holds everything. fixed: the sizes of
// the dense part in memory; `process` is not used.
std::vector<DeviceFit> WhatFitsOnDevice(const ExpertCatalog& catalog, const ModelSpec& spec,
                                        const FixedMemory& fixed, uint32_t chunk);

// The experts that a budget of `ram` holds; nullopt: the budget is too small. `block`: the
// granularity of reads.
std::optional<Fit> FitIn(uint64_t ram, const ExpertCatalog& catalog, uint32_t n_used,
                         const FixedMemory& fixed, uint64_t block);

// One entry for the smallest budget that works, which is whole MiB, then for each usual size of
// memory, up to a size that holds everything.
std::vector<Fit> WhatFits(const ExpertCatalog& catalog, uint32_t n_used, const FixedMemory& fixed,
                          uint64_t block);

// Memory that a model needs in a context, by the model's directory alone.

struct ContextWish {
  uint32_t ctx = 4096;  // tokens; capped at the model's
  uint32_t chunk = 0;   // 0: native/plan/engine_plan.h
  KvType kv_type = KvType::kF16;
};

struct MemoryNeeds {
  uint32_t ctx = 0;          // tokens
  uint32_t chunk = 0;        // tokens of a prompt that are evaluated at once
  uint64_t dense_bytes = 0;  // includes keys that are joined for latent attention
  MemoryShape remembers;
  FixedMemory fixed = {};
  ExpertCatalog catalog = {};

  // kInvalidRequest: the type of keys and values does not fit the model.
  static Result<MemoryNeeds> Of(const ModelFile& model, const ContextWish& wish);
};

}  // namespace moestro
