// SPDX-License-Identifier: MIT
// Drafts with the model itself, with fewer experts and of these as many as possible that are in
// memory; what is not there is left out, so that a draft reads nothing. What its routers say is
// read ahead for the step that checks it.
#pragma once

#include <cstdint>
#include <span>

#include "engine/engine.h"
#include "text/drafter.h"

namespace moestro {

class LittleDrafter final : public Drafter {
 public:
  // Both must outlive this; `sequence` is that of the text. REQUIRES: the model uses more than one
  // expert for a token.
  LittleDrafter(Engine& engine, Sequence& sequence);

  Result<Draft> Propose(std::span<const Token> text, uint32_t most) override;

 private:
  Status Add(Token token, Draft& draft);

  Engine& engine_;
  Sequence& sequence_;
  LittleStep little_;
};

}  // namespace moestro
