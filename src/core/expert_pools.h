// SPDX-License-Identifier: MIT
// Pool of slots of each expert, and the size of a pool's experts: the part of a catalog
// (expert_catalog.h) that code without reads needs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/ids.h"

namespace moestro {

struct ExpertPools {
  struct Pool {
    std::array<uint64_t, kMatrices> matrix_bytes{};  // of one expert's reads
    uint64_t slots = 0;  // slots of the pool in the engine that recorded; 0: unknown
    bool operator==(const Pool&) const = default;
    uint64_t expert_bytes() const { return matrix_bytes[0] + matrix_bytes[1] + matrix_bytes[2]; }
  };
  std::vector<Pool> pools = {};        // of the model's own copies; empty: unknown
  std::vector<uint16_t> pool_of = {};  // [layer][expert]; empty: all go to the first

  bool is_known() const { return !pools.empty(); }
  // REQUIRES: is_known(), or the caller takes all experts for one pool; `experts` is the number of
  // experts of a layer.
  uint32_t of(ExpertKey key, uint32_t experts) const {
    if (pool_of.empty()) return 0;
    return pool_of[size_t{key.layer.value} * experts + key.expert.value];
  }
  bool operator==(const ExpertPools&) const = default;
};

}  // namespace moestro
