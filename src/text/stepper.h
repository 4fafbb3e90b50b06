// SPDX-License-Identifier: MIT
// The seam between text generation and whatever turns tokens into logits. Sides: EngineStepper
// (production), a scripted one in tests, and DraftingStepper in front of either.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "core/ids.h"

namespace moestro {

// Thread rule: the one of Engine, all methods on one thread.
class Stepper {
 public:
  virtual ~Stepper() = default;
  // Appends tokens to the sequence; the logits after the last one, [n_vocab], valid until the next
  // call. kInterrupted when the user asked to stop; after any error the sequence is as before.
  virtual Result<std::span<const float>> Append(std::span<const Token> tokens) = 0;
  virtual uint32_t position() const = 0;  // tokens in the sequence
  virtual uint32_t n_ctx() const = 0;     // the most it can hold
  // Forgets all tokens from `position` on. Errors: of evaluating some of the others again, where
  // the model's layers cannot go on from there; the sequence then has fewer tokens. REQUIRES:
  // position <= this->position().
  virtual Status Rewind(uint32_t position) = 0;
};

// One that gives the logits of several tokens at once.
class RowStepper : public Stepper {
 public:
  // Appends tokens as one decode step: [n_tokens][n_vocab], valid until the next call. `foreseen`:
  // see Batch::foreseen. Errors as Append().
  virtual Result<std::span<const float>> AppendRows(
      std::span<const Token> tokens, std::vector<std::vector<ExpertId>> foreseen) = 0;
  virtual std::span<const Token> tokens() const = 0;  // of the sequence
};

}  // namespace moestro
