// SPDX-License-Identifier: MIT
// The values of states, in memory; memory/state_slots.h keeps track of the places in use.
//
// Thread rule: the engine thread; threads of the team may read and write while a graph runs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "compute/backend_buffer.h"
#include "memory/layer_memory.h"
#include "memory/state_slots.h"

namespace moestro {

class StateStore {
 public:
  // kNoMemory.
  static Result<StateStore> Allocate(const MemoryShape& shape, uint32_t n_slots);
  static uint64_t BytesFor(const MemoryShape& shape, uint32_t n_slots) {
    return n_slots * shape.state_bytes();
  }

  // A layer's values in a place; empty: the layer has no state.
  std::span<float> state(StateSlot slot, uint32_t layer) const;
  // The values of all layers in a place, layer by layer.
  std::span<float> all(StateSlot slot) const;

 private:
  BackendBuffer buffer_;
  uint64_t slot_values_ = 0;
  std::vector<uint64_t> begins_;  // [layer], and the end
};

}  // namespace moestro
