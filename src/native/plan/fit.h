// SPDX-License-Identifier: MIT
// Which share of a model's experts a memory budget holds, estimated without loading anything.
#pragma once

#include <cstdint>
#include <vector>

#include "core/expert_catalog.h"
#include "core/model_spec.h"
#include "memory/layer_memory.h"

namespace moestro {

// Bytes that are taken whatever the number of slots.
struct FixedMemory {
  uint64_t dense = 0;
  uint64_t kv = 0;
  uint64_t work = 0;
  uint64_t process = 0;
};
// n_ctx tokens, with keys and values of `kv_type`.
FixedMemory EstimateFixed(const ModelSpec& spec, uint64_t dense_bytes, uint32_t n_ctx,
                          const MemoryShape& remembers, uint32_t chunk);

struct Fit {
  uint64_t ram = 0;  // of the whole process
  uint64_t slots = 0;
  uint64_t experts = 0;
  double share() const {
    return experts > 0 ? static_cast<double>(slots) / static_cast<double>(experts) : 0.0;
  }
};

// Experts that a device's memory holds beside what computing them takes, and beside the dense part
// where there is room for it.
struct DeviceFit {
  uint64_t vram = 0;
  uint64_t slots = 0;
  uint64_t experts = 0;
  bool has_dense = false;
};
// Over the usual sizes of memory to one that holds everything. fixed: what the dense part takes in
// memory; `process` is not looked at.
std::vector<DeviceFit> WhatFitsOnDevice(const ExpertCatalog& catalog, const ModelSpec& spec,
                                        const FixedMemory& fixed, uint32_t chunk);

// From the smallest budget that works over the usual sizes of memory to one that holds everything.
// `block`: the granularity of reads.
std::vector<Fit> WhatFits(const ExpertCatalog& catalog, uint32_t n_used, const FixedMemory& fixed,
                          uint64_t block);

}  // namespace moestro
