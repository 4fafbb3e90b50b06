// SPDX-License-Identifier: MIT
// Drafts the tokens that followed the same few tokens earlier in the text: names, quotations, code.
// Needs no model.
#pragma once

#include <cstdint>
#include <span>

#include "text/drafter.h"

namespace moestro {

class NgramDrafter final : public Drafter {
 public:
  // Drafts the tokens after the latest earlier place that matches the end of the text. The longest
  // match is used, of four to two tokens.
  Result<Draft> Propose(std::span<const Token> text, uint32_t most) override;
};

}  // namespace moestro
