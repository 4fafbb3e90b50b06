// SPDX-License-Identifier: MIT
// Texts that were computed and may begin later texts: sequences that rest in the KV cache. A
// request whose prompt begins like a kept text forks the text's sequence and computes the rest
// only. When positions are needed, the text that was used longest ago goes first.
//
// Thread rule: the engine thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/ids.h"
#include "engine/sequence.h"
#include "serve/prefix_match.h"

namespace moestro {

class PrefixPool {
 public:
  struct CachedPrefix {
    Sequence sequence;
    double used = 0.0;      // time of the last request that ended with the text or began from it
    bool is_saved = false;  // a file holds the text
  };

  // The kept text with the most tokens in common with `tokens`, at most `most`; nullopt: no kept
  // text has a token in common.
  std::optional<PrefixMatch> Find(std::span<const Token> tokens, uint32_t most) const;
  // The most tokens that a kept text has in common with `tokens`, at most `most`, whether or not
  // the text can go on from there.
  uint32_t MostInCommon(std::span<const Token> tokens, uint32_t most) const;
  // A sequence of the first `match.common` tokens. Counts as a use of the text.
  Sequence Begin(const PrefixMatch& match, double now);
  // Keeps a text unless a kept text covers it; drops kept texts that the new text covers. A text
  // covers another one when it begins with the other and can be cut back to it.
  void Keep(Sequence sequence, bool is_saved, double now);
  // A sequence of exactly these tokens, forked from a kept text that covers them; nullopt: no kept
  // text covers them, the engine has no place for the fork, or `tokens` is empty.
  std::optional<Sequence> ForkWhole(std::span<const Token> tokens) const;
  // Whether a kept text begins with these tokens.
  bool BeginWith(std::span<const Token> tokens) const;
  // Drops the kept texts of exactly these tokens, or of their beginning, to which a text may have
  // been cut back while it rested; false: no kept text matches.
  bool Drop(std::span<const Token> tokens);
  // The text that was used longest ago; nullptr: no text is kept.
  CachedPrefix* FindOldest();
  // Drops the text that was used longest ago; false: no text is kept.
  bool DropOldest();
  // A text that has rested since `before` and that no file holds; nullptr: no such text.
  CachedPrefix* FindUnsaved(double before);

  std::span<const CachedPrefix> all() const { return kept_; }

 private:
  std::vector<CachedPrefix> kept_;
};

}  // namespace moestro
