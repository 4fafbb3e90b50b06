// SPDX-License-Identifier: MIT
// Keeps track of the places for states that are in use. A place may have several users: sequences
// that were forked, and checkpoints. Pure bookkeeping: the values lie in memory/state_store.h.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/ids.h"

namespace moestro {

// A place for one state of every layer that has one.
using StateSlot = Id<struct StateSlotTag, uint32_t>;

class StateSlots {
 public:
  explicit StateSlots(uint32_t n_slots);

  // A place with one user; nullopt: all are in use.
  std::optional<StateSlot> Take();
  // One user more, and one less. REQUIRES: the place is in use.
  void Share(StateSlot slot);
  void GiveBack(StateSlot slot);

  bool is_used(StateSlot slot) const { return users_[slot.value] > 0; }
  uint32_t size() const { return static_cast<uint32_t>(users_.size()); }
  uint32_t free() const { return static_cast<uint32_t>(free_.size()); }

 private:
  std::vector<uint32_t> users_;  // [slot]
  std::vector<StateSlot> free_;  // taken from the end
};

}  // namespace moestro
