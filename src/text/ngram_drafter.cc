// SPDX-License-Identifier: MIT
#include "text/ngram_drafter.h"

#include <algorithm>
#include <cstddef>

namespace moestro {

Result<Draft> NgramDrafter::Propose(std::span<const Token> text, uint32_t most) {
  constexpr size_t kLongest = 4;
  constexpr size_t kShortest = 2;
  size_t best = kShortest - 1;  // number of equal tokens
  size_t after = 0;
  for (size_t end = text.size() - std::min<size_t>(text.size(), 1); end > 0; --end) {
    size_t same = 0;
    while (same < kLongest && same < end && text[end - 1 - same] == text[text.size() - 1 - same]) {
      ++same;
    }
    if (same <= best) continue;
    best = same;
    after = end;
    if (best == kLongest) break;
  }
  Draft draft;
  if (after == 0) return draft;
  const std::span<const Token> follows = text.subspan(after);
  draft.tokens.assign_range(follows.first(std::min<size_t>(most, follows.size())));
  return draft;
}

}  // namespace moestro
