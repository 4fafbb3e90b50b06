// SPDX-License-Identifier: MIT
#include "decide/slots/policy_tuning.h"

#include <algorithm>
#include <cmath>

namespace moestro {

const PolicyChoice& ChoiceFor(const PolicyTuning& tuning, uint64_t slots) {
  const auto distance = [slots](const TunedSize& size) {
    return std::abs(std::log(static_cast<double>(size.slots) / static_cast<double>(slots)));
  };
  return std::ranges::min_element(tuning.sizes, {}, distance)->choice;
}

}  // namespace moestro
