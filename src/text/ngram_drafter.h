// SPDX-License-Identifier: MIT
// Drafts what followed the same few tokens earlier in the text: names, quotations, code. It needs
// no model.
#pragma once

#include <cstdint>
#include <span>

#include "text/drafter.h"

namespace moestro {

class NgramDrafter final : public Drafter {
 public:
  // After the latest earlier place with the longest end of the text, four tokens to two.
  Result<Draft> Propose(std::span<const Token> text, uint32_t most) override;
};

}  // namespace moestro
