// SPDX-License-Identifier: MIT
// The number of experts that a tier holds, as users write it: "512" or "12.5%".
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace moestro {

// A number of slots, or a share of all experts.
struct SlotCount {
  uint64_t slots = 0;
  double percent = 0.0;  // used when slots == 0

  uint64_t of(uint64_t experts) const {
    if (slots > 0) return std::min(slots, experts);
    return static_cast<uint64_t>(std::llround(percent / 100.0 * static_cast<double>(experts)));
  }
};

// "24,12.5%". kUsage, naming the wrong number.
Status ParseSlotCounts(std::string_view text, std::vector<SlotCount>& counts);

}  // namespace moestro
