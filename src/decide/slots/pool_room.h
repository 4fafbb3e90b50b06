// SPDX-License-Identifier: MIT
// Room for experts that keep slots of memory for later. Prefetches, an upgrade and copies to
// devices keep slots while a layer requests its own experts and waits for none of them. So they
// leave as many slots as a layer may request at once, or in smaller pools at least one, through
// which the layer's experts pass. Pure.
#pragma once

#include <algorithm>
#include <cstdint>

namespace moestro {

// Room of one pool in one step. Slots are kept for at most prefetches() + promotions() experts, and
// for one more if may_upgrade(); together these are fewer than all slots.
struct PoolRoom {
  uint64_t slots = 0;
  uint64_t own = 0;  // the most slots that a layer of the step requests

  // Slots for experts of later layers. Their victims are chosen from at least half of the pool.
  uint64_t prefetches() const { return slots > 2 * own ? (slots - 2 * own) / 2 : 0; }
  // Whether a slot may hold the own copy of an expert whose low copy ran.
  bool may_upgrade() const { return slots > 1; }
  // Slots for experts that are copied to devices; each keeps its slot until the step after.
  uint64_t promotions() const {
    const uint64_t others = own + prefetches() + 1;
    return slots > others ? slots - others : 0;
  }
};

// The most experts that a layer requests in a step of so many rows.
inline uint64_t MostOwn(uint32_t n_expert, uint32_t n_used, uint64_t rows) {
  return std::min<uint64_t>(n_expert, rows * n_used);
}

}  // namespace moestro
