// SPDX-License-Identifier: MIT
// A Stepper that computes ahead: it drafts tokens and evaluates them in one step with the requested
// token. While the next tokens are the drafted ones, their logits are ready. The code that picks
// tokens gets the same logits one after the other as without drafts (to rounding, see
// docs/decisions/0004-bits-and-tolerances.md), so a sampler's state stays valid and the text is the
// same.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "text/draft_control.h"
#include "text/drafter.h"
#include "text/stepper.h"
#include "text/text_drafts.h"

namespace moestro {

class DraftingStepper final : public Stepper {
 public:
  // `rows`, `drafter` and `control` must outlive this; `told` may be empty.
  DraftingStepper(RowStepper& rows, Drafter& drafter, DraftControl& control, const Clock& clock,
                  TextDrafts::Told told)
      : rows_(rows), clock_(clock), drafts_(drafter, control, clock, std::move(told)) {}

  Result<std::span<const float>> Append(std::span<const Token> tokens) override;
  uint32_t position() const override;
  uint32_t n_ctx() const override { return rows_.n_ctx(); }
  Status Rewind(uint32_t position) override;

  // Removes drafts that were not taken, so that the sequence holds the text alone. Call before
  // other code uses the sequence. Errors as Rewind().
  Status Finish();

 private:
  Result<std::span<const float>> Begin(Token token);
  std::span<const float> Row(size_t row) const;

  RowStepper& rows_;
  Clock clock_;
  TextDrafts drafts_;
  // The step of the last draft: its tokens, of which the first `taken_` are part of the text.
  std::vector<Token> tokens_;
  size_t taken_ = 0;
  uint32_t first_ = 0;             // position of tokens_[0]
  std::span<const float> logits_;  // [tokens][n_vocab]
  double step_seconds_ = 0.0;      // of this step
  std::vector<Token> text_;        // scratch
};

}  // namespace moestro
