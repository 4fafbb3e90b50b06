// SPDX-License-Identifier: MIT
// The text, among several, that has the most tokens in common with the beginning of another. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <ranges>
#include <span>

#include "core/ids.h"
#include "text/text_tokens.h"

namespace moestro {

struct PrefixMatch {
  size_t index = 0;     // number of the text in `texts`
  uint32_t common = 0;  // common tokens that a text can go on from, above 0
};

// `texts`: a range. `tokens_of` gives an element's tokens. `reach(element, n)` gives the largest
// number, up to n, of first tokens that the element can go on from. At most `most` tokens count.
// nullopt: no text has a token in common.
template <std::ranges::range Texts, class TokensOf, class Reach>
std::optional<PrefixMatch> LongestPrefix(const Texts& texts, TokensOf&& tokens_of, Reach&& reach,
                                         std::span<const Token> tokens, uint32_t most) {
  std::optional<PrefixMatch> best;
  size_t index = 0;
  for (const auto& text : texts) {
    const size_t common = std::min<size_t>(CommonPrefix(tokens_of(text), tokens), most);
    const uint32_t reached = reach(text, static_cast<uint32_t>(common));
    if (reached > (best ? best->common : 0)) {
      best = PrefixMatch{.index = index, .common = reached};
    }
    ++index;
  }
  return best;
}

}  // namespace moestro
