// SPDX-License-Identifier: MIT
#include "residency/ngram_rows.h"

#include <cstddef>

#include "base/result.h"

namespace moestro {

void NgramRows(const NgramSpec& spec, std::span<const Token> text, std::span<uint64_t> rows) {
  CHECK(!text.empty() && rows.size() == spec.n_heads());
  const auto factored = [&](Token token, size_t back) {
    return static_cast<uint64_t>(token) * spec.factors[back];
  };
  uint64_t hash = factored(text.back(), 0);
  bool is_cut = false;
  size_t head = 0;
  for (size_t back = 1; back < spec.n_most; ++back) {
    is_cut = is_cut || back >= text.size() || text[text.size() - 1 - back] == spec.end;
    hash ^= factored(is_cut ? spec.end : text[text.size() - 1 - back], back);
    for (uint32_t i = 0; i < spec.heads_of_each; ++i, ++head) {
      rows[head] = spec.heads[head].first + hash % spec.heads[head].count;
    }
  }
}

}  // namespace moestro
