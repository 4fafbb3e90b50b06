// SPDX-License-Identifier: MIT
// The interface between text generation and the code that turns tokens into logits.
// Implementations: EngineStepper (production), a scripted stepper in tests, and DraftingStepper in
// front of either.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "core/ids.h"

namespace moestro {

// Thread rule: that of Engine, all methods on one thread.
class Stepper {
 public:
  virtual ~Stepper() = default;
  // Appends tokens to the sequence. Returns the logits after the last token, [n_vocab], valid until
  // the next call. kInterrupted after a stop request of the user; after any error the sequence is
  // as before.
  virtual Result<std::span<const float>> Append(std::span<const Token> tokens) = 0;
  virtual uint32_t position() const = 0;  // tokens in the sequence
  virtual uint32_t n_ctx() const = 0;     // the most tokens in the sequence
  // Forgets all tokens from `position` on. Some earlier tokens are evaluated again if the model's
  // layers cannot go on from `position`. After an error of this evaluation the sequence has fewer
  // tokens. REQUIRES: position <= this->position().
  virtual Status Rewind(uint32_t position) = 0;
};

// A stepper that gives the logits of several tokens at once.
class RowStepper : public Stepper {
 public:
  // Appends tokens as one decode step: [n_tokens][n_vocab], valid until the next call. `foreseen`:
  // see Batch::foreseen. Errors as Append().
  virtual Result<std::span<const float>> AppendRows(
      std::span<const Token> tokens, std::vector<std::vector<ExpertId>> foreseen) = 0;
  virtual std::span<const Token> tokens() const = 0;  // tokens of the sequence
};

}  // namespace moestro
