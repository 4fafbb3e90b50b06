// SPDX-License-Identifier: MIT
// Drafts with the model itself, with fewer experts, and with experts in memory where possible.
// Missing experts are left out, so that a draft reads no expert. The experts that the draft's
// routers choose are read ahead for the step that checks the draft.
#pragma once

#include <cstdint>
#include <span>

#include "engine/engine.h"
#include "text/drafter.h"

namespace moestro {

class LittleDrafter final : public Drafter {
 public:
  // Both must outlive this; `sequence` is the text's sequence. REQUIRES: the model uses more than
  // one expert for a token.
  LittleDrafter(Engine& engine, Sequence& sequence);

  Result<Draft> Propose(std::span<const Token> text, uint32_t most) override;

 private:
  Status Add(Token token, Draft& draft);

  Engine& engine_;
  Sequence& sequence_;
  LittleStep little_;
};

}  // namespace moestro
