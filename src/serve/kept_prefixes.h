// SPDX-License-Identifier: MIT
// Texts that were computed and may begin again: sequences that rest in the KV cache. A request
// whose prompt begins like one forks it and computes the rest only. The one that was used longest
// ago goes first when positions are needed.
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

class KeptPrefixes {
 public:
  struct Kept {
    Sequence sequence;
    double used = 0.0;      // when a request ended with it or began from it
    bool is_saved = false;  // a file has it
  };

  // The kept text with the most tokens in common with `tokens`, at most `most`; nullopt: none has
  // any. Counts as a use.
  std::optional<PrefixMatch> Find(std::span<const Token> tokens, uint32_t most) const;
  // A sequence of the first `match.common` tokens.
  Sequence Begin(const PrefixMatch& match, double now);
  // Keeps a text, unless a kept one covers it: begins with it and can be cut back to it. Those that
  // it covers go.
  void Keep(Sequence sequence, bool is_saved, double now);
  // A sequence of these tokens, of a kept text that covers them; nullopt: there is none, or there
  // are no tokens.
  std::optional<Sequence> ForkWhole(std::span<const Token> tokens) const;
  // Lets go of the one of just these tokens; false: there is none.
  bool Drop(std::span<const Token> tokens);
  // The one used longest ago; nullptr: none.
  Kept* FindOldest();
  // Lets go of the one used longest ago; false: there is none.
  bool DropOldest();
  // One that has rested since `before` and no file has; nullptr: none.
  Kept* FindUnsaved(double before);

  std::span<const Kept> all() const { return kept_; }

 private:
  std::vector<Kept> kept_;
};

}  // namespace moestro
