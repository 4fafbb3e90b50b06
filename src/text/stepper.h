// SPDX-License-Identifier: MIT
// The seam between text generation and whatever turns tokens into logits. Sides: EngineStepper
// (production), a scripted one in tests.
#pragma once

#include <cstdint>
#include <span>

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
  // Forgets all tokens from `position` on. REQUIRES: position <= this->position().
  virtual void Rewind(uint32_t position) = 0;
};

}  // namespace moestro
