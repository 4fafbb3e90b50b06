// SPDX-License-Identifier: MIT
// The drafts of one text: how many tokens are worth a draft now, the draft under way, and whether
// drafts have paid. A draft is computed in one step with the text's newest token; the tokens that
// the sampler then picks decide how much of it was right.
//
// Thread rule: the engine thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "core/ids.h"
#include "text/draft_control.h"
#include "text/drafter.h"

namespace moestro {

class TextDrafts {
 public:
  // Called after each round: tokens that were drafted, and those of them that the text took.
  using Told = std::function<void(uint32_t proposed, uint32_t accepted)>;

  // `drafter` and `control` must outlive this; `told` may be empty.
  TextDrafts(Drafter& drafter, DraftControl& control, Clock clock, Told told)
      : drafter_(drafter), control_(control), clock_(std::move(clock)), told_(std::move(told)) {}

  // Tokens that the next draft should have; 0: a plain step is expected to be faster.
  uint32_t wanted() const { return control_.Next(); }
  // Drafts at most `most` tokens behind `text`, whose last token has not been evaluated. Without a
  // guess tokens() stays empty. Errors as Drafter::Propose().
  Status Propose(std::span<const Token> text, uint32_t most);
  // The draft under way.
  std::span<const Token> tokens() const { return draft_.tokens; }
  // See Batch::foreseen. Once for each draft.
  std::vector<std::vector<ExpertId>> TakeForeseen() { return std::exchange(draft_.foreseen, {}); }

  // A step of the newest token alone took so many seconds, for `n_texts` texts together. The time
  // of a Propose() without a guess counts, too.
  void Plain(double seconds, uint32_t n_texts = 1);
  // The step with the draft took so many seconds, for `n_texts` texts together, and the text took
  // the first `accepted` tokens. Ends the draft.
  void Round(double step_seconds, uint32_t accepted, uint32_t n_texts = 1);
  // Ends a draft whose step was not computed.
  void Discard() { draft_ = {}; }

 private:
  Drafter& drafter_;
  DraftControl& control_;
  Clock clock_;
  Told told_;
  Draft draft_;
  double draft_seconds_ = 0.0;  // of the last Propose()
  uint32_t n_texts_ = 1;        // of the last plain step
};

}  // namespace moestro
