// SPDX-License-Identifier: MIT
#include "text/text_drafts.h"

#include <algorithm>
#include <utility>

namespace moestro {

Status TextDrafts::Propose(std::span<const Token> text, uint32_t most) {
  const double start = clock_();
  TRY(draft_, drafter_.Propose(text, most));
  draft_seconds_ = clock_() - start;
  return {};
}

// A draft pays if its tokens come faster than the step's texts make tokens together, since all of
// them wait for its rows. So a plain step counts as the time of one text's token.
void TextDrafts::Plain(double seconds, uint32_t n_texts) {
  // Texts that come or go change what a token takes.
  if (n_texts != std::exchange(n_texts_, n_texts)) control_.Remeasure();
  control_.Plain((std::exchange(draft_seconds_, 0.0) + seconds) / n_texts);
}

void TextDrafts::Round(double step_seconds, uint32_t accepted, uint32_t n_texts) {
  const auto drafted = static_cast<uint32_t>(draft_.tokens.size());
  const double others = (n_texts - 1) * control_.plain_seconds();
  control_.Round({.draft_seconds = std::exchange(draft_seconds_, 0.0),
                  .step_seconds = std::max(step_seconds - others, 0.0),
                  .drafted = drafted,
                  .accepted = accepted});
  draft_ = {};
  if (told_) told_(drafted, accepted);
}

}  // namespace moestro
