// SPDX-License-Identifier: MIT
// Guesses the next tokens of a text. A wrong guess costs only time, because a step of the model
// checks it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "core/ids.h"

namespace moestro {

struct Draft {
  std::vector<Token> tokens;
  // The experts that the checking step will probably need, see Batch::foreseen; often empty.
  std::vector<std::vector<ExpertId>> foreseen = {};
};

// Thread rule: that of Engine.
class Drafter {
 public:
  virtual ~Drafter() = default;
  // At most `most` tokens that may follow `text`, whose last token has not been evaluated; no token
  // if the drafter has no guess. Errors, kInterrupted among them, leave the sequence as it was.
  virtual Result<Draft> Propose(std::span<const Token> text, uint32_t most) = 0;
};

}  // namespace moestro
