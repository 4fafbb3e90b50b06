// SPDX-License-Identifier: MIT
// Tokens for measurements that need no text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "core/ids.h"

namespace moestro {

inline constexpr uint32_t kDefaultSeed = 1;

// The same on every machine: std::uniform_int_distribution would not promise that.
inline std::vector<Token> RandomTokens(size_t n, uint32_t n_vocab, uint32_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Token> tokens(n);
  for (Token& token : tokens) token = static_cast<Token>(random() % n_vocab);
  return tokens;
}

}  // namespace moestro
