// SPDX-License-Identifier: MIT
#include "serve/kept_prefixes.h"

#include <algorithm>
#include <utility>

#include "text/generate.h"

namespace moestro {

std::optional<KeptPrefixes::Match> KeptPrefixes::Find(std::span<const Token> tokens,
                                                      uint32_t most) const {
  std::optional<Match> best;
  for (size_t i = 0; i < kept_.size(); ++i) {
    const size_t common = std::min<size_t>(CommonPrefix(kept_[i].sequence.tokens(), tokens), most);
    if (common > (best ? best->common : 0)) {
      best = Match{.index = i, .common = static_cast<uint32_t>(common)};
    }
  }
  return best;
}

Sequence KeptPrefixes::Begin(const Match& match, double now) {
  Kept& kept = kept_[match.index];
  kept.used = now;
  Sequence sequence = kept.sequence.Fork();
  sequence.CutBack(match.common);
  return sequence;
}

void KeptPrefixes::Keep(Sequence sequence, bool is_saved, double now) {
  const auto longer = std::ranges::find_if(kept_, [&](const Kept& kept) {
    return std::ranges::starts_with(kept.sequence.tokens(), sequence.tokens());
  });
  if (longer != kept_.end()) {
    longer->used = now;
    return;
  }
  std::erase_if(kept_, [&](const Kept& kept) {
    return std::ranges::starts_with(sequence.tokens(), kept.sequence.tokens());
  });
  kept_.push_back({.sequence = std::move(sequence), .used = now, .is_saved = is_saved});
}

bool KeptPrefixes::DropOldest() {
  if (kept_.empty()) return false;
  kept_.erase(std::ranges::min_element(kept_, {}, &Kept::used));
  return true;
}

KeptPrefixes::Kept* KeptPrefixes::FindUnsaved(double before) {
  const auto found = std::ranges::find_if(
      kept_, [&](const Kept& kept) { return !kept.is_saved && kept.used <= before; });
  return found == kept_.end() ? nullptr : &*found;
}

}  // namespace moestro
