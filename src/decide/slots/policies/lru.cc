// SPDX-License-Identifier: MIT
#include "decide/slots/policies/lru.h"

#include "base/check.h"
#include "decide/slots/policies/policies.h"

namespace moestro {

void LruPolicy::Reset(const PolicyShape& shape) {
  links_.assign(shape.slots + 1, Link{});
  links_[shape.slots] = {.previous = sentinel(), .next = sentinel()};
}

void LruPolicy::Inserted(SlotId slot, ExpertKey /*key*/, uint32_t /*rows*/) {
  LinkFirst(slot.value);
}

void LruPolicy::Touched(SlotId slot, uint32_t /*rows*/) {
  Unlink(slot.value);
  LinkFirst(slot.value);
}

void LruPolicy::Erased(SlotId slot) { Unlink(slot.value); }

SlotId LruPolicy::Victim(const PinView& pins) const {
  uint32_t i = links_[sentinel()].previous;
  while (i != sentinel() && pins.is_pinned(SlotId{i})) i = links_[i].previous;
  CHECK(i != sentinel());
  return SlotId{i};
}

void LruPolicy::Unlink(uint32_t i) {
  links_[links_[i].previous].next = links_[i].next;
  links_[links_[i].next].previous = links_[i].previous;
}

void LruPolicy::LinkFirst(uint32_t i) {
  const uint32_t head = sentinel();
  links_[i] = {.previous = head, .next = links_[head].next};
  links_[links_[head].next].previous = i;
  links_[head].next = i;
}

std::unique_ptr<Policy> MakeLru(const PolicyValues& /*values*/) {
  return std::make_unique<LruPolicy>();
}

}  // namespace moestro
