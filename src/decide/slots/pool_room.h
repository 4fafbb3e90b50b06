// SPDX-License-Identifier: MIT
// Who may keep slots of memory for later. A layer asks for its own experts while prefetches, an
// upgrade and copies to devices keep slots of theirs, and it waits for none of these: so they leave
// as many as it may ask for at once, and where there are not so many, at least one, through which
// its experts pass. Pure.
#pragma once

#include <algorithm>
#include <cstdint>

namespace moestro {

// Of one pool in one step. Slots are kept for at most prefetches() + promotions() experts, and for
// one more if may_upgrade(); together these are fewer than all slots.
struct PoolRoom {
  uint64_t slots = 0;
  uint64_t own = 0;  // that a layer of the step may ask for

  // Experts of later layers, and what they replace is chosen from at least half of the pool.
  uint64_t prefetches() const { return slots > 2 * own ? (slots - 2 * own) / 2 : 0; }
  // Of an expert whose low copy ran, the own one.
  bool may_upgrade() const { return slots > 1; }
  // Experts that are copied to devices; each keeps its slot until the step after.
  uint64_t promotions() const {
    const uint64_t others = own + prefetches() + 1;
    return slots > others ? slots - others : 0;
  }
};

// That a layer may ask for in a step of so many rows.
inline uint64_t MostOwn(uint32_t n_expert, uint32_t n_used, uint64_t rows) {
  return std::min<uint64_t>(n_expert, rows * n_used);
}

}  // namespace moestro
