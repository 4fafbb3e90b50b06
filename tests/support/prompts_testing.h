// SPDX-License-Identifier: MIT
// Seeded token sequences and what tests ask of logits.
#pragma once

#include <algorithm>
#include <span>

#include "core/ids.h"
#include "core/random_tokens.h"  // IWYU pragma: export

namespace moestro {

inline Token Greedy(std::span<const float> logits) {
  return static_cast<Token>(std::ranges::max_element(logits) - logits.begin());
}

}  // namespace moestro
