// SPDX-License-Identifier: MIT
// Tokens for measurements that need no text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "core/ids.h"
#include "core/model_spec.h"

namespace moestro {

inline constexpr uint32_t kDefaultSeed = 1;

// Draws tokens that are the same on every machine, which std::uniform_int_distribution does not
// promise.
inline std::vector<Token> RandomTokens(size_t n, uint32_t n_vocab, uint32_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Token> tokens(n);
  for (Token& token : tokens) token = static_cast<Token>(random() % n_vocab);
  return tokens;
}

// Makes the first `n_prompt` tokens a prompt of the model: of one with an encoder a source with its
// end, and the token with which the target begins. Fewer than two are left as they are.
inline void MakePrompt(const std::optional<EncoderSpec>& encoder, size_t n_prompt,
                       std::vector<Token>& tokens) {
  if (!encoder || n_prompt < 2) return;
  const size_t end = n_prompt - 2;
  for (Token& token : std::span(tokens).first(end)) {
    if (token == encoder->source_end) token = encoder->target_begin;
  }
  tokens[end] = encoder->source_end;
  tokens[end + 1] = encoder->target_begin;
}

}  // namespace moestro
