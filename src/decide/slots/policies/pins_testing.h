// SPDX-License-Identifier: MIT
// For tests of policies: slots that must not be chosen.
#pragma once

#include <cstdint>
#include <set>
#include <utility>

#include "decide/slots/policy.h"

namespace moestro {

class Pins final : public PinView {
 public:
  explicit Pins(std::set<uint32_t> pinned = {}) : pinned_(std::move(pinned)) {}
  bool is_pinned(SlotId slot) const override { return pinned_.contains(slot.value); }

 private:
  std::set<uint32_t> pinned_;
};

}  // namespace moestro
