// SPDX-License-Identifier: MIT
// Where every expert's matrices lie on disk, and which pool of slots they go to when read.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/extent.h"
#include "core/ids.h"

namespace moestro {

// Experts whose three matrices take the same bytes can use each other's slots.
struct PoolShape {
  std::array<uint64_t, kMatrices> slice_bytes{};
  uint64_t experts = 0;  // of all layers that use this pool

  uint64_t expert_bytes() const { return slice_bytes[0] + slice_bytes[1] + slice_bytes[2]; }
  // Memory of one slot when reads cover whole blocks.
  uint64_t slot_bytes(uint64_t block) const {
    uint64_t bytes = 0;
    for (const uint64_t slice : slice_bytes) bytes += WindowCapacity(slice, block);
    return bytes;
  }
};

struct ExpertCatalog {
  struct Layer {
    uint32_t pool = 0;
    std::array<std::vector<Extent>, kMatrices> slices;  // [matrix][expert]
  };
  std::vector<Layer> layers;
  std::vector<PoolShape> pools;

  uint64_t total_bytes() const {
    uint64_t bytes = 0;
    for (const PoolShape& pool : pools) bytes += pool.experts * pool.expert_bytes();
    return bytes;
  }
};

}  // namespace moestro
