// SPDX-License-Identifier: MIT
#include "memory/state_slots.h"

#include "base/check.h"

namespace moestro {

StateSlots::StateSlots(uint32_t n_slots) : users_(n_slots) {
  for (uint32_t s = n_slots; s > 0; --s) free_.push_back({s - 1});
}

std::optional<StateSlot> StateSlots::Take() {
  if (free_.empty()) return std::nullopt;
  const StateSlot slot = free_.back();
  free_.pop_back();
  users_[slot.value] = 1;
  return slot;
}

void StateSlots::Share(StateSlot slot) {
  CHECK(users_[slot.value] > 0);
  ++users_[slot.value];
}

void StateSlots::GiveBack(StateSlot slot) {
  CHECK(users_[slot.value] > 0);
  if (--users_[slot.value] == 0) free_.push_back(slot);
}

}  // namespace moestro
