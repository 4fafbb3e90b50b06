// SPDX-License-Identifier: MIT
// Guesses how a text goes on. A guess costs nothing but time: a step of the model checks it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "core/ids.h"

namespace moestro {

struct Draft {
  std::vector<Token> tokens;
  // What the step that checks them will probably ask for, see Batch::foreseen; often empty.
  std::vector<std::vector<ExpertId>> foreseen = {};
};

// Thread rule: the one of Engine.
class Drafter {
 public:
  virtual ~Drafter() = default;
  // At most `most` tokens that may follow `text`, whose last token has not been evaluated; none
  // when it has no idea. Errors, kInterrupted among them, leave the sequence as it was.
  virtual Result<Draft> Propose(std::span<const Token> text, uint32_t most) = 0;
};

}  // namespace moestro
