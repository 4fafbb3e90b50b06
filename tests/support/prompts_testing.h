// SPDX-License-Identifier: MIT
// Seeded token sequences and what tests ask of logits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "core/ids.h"

namespace moestro {

inline std::vector<Token> SeededTokens(size_t n, uint32_t n_vocab, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<Token> tokens(n);
  for (Token& t : tokens) t = static_cast<Token>(random() % n_vocab);
  return tokens;
}

inline Token Greedy(std::span<const float> logits) {
  return static_cast<Token>(std::ranges::max_element(logits) - logits.begin());
}

}  // namespace moestro
