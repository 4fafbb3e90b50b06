// SPDX-License-Identifier: MIT
// --draft: who guesses the next tokens, and how many at most.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace moestro {

enum class DraftKind : uint8_t { kNone, kLittle, kNgram };

struct DraftOptions {
  DraftKind kind = DraftKind::kNone;
  uint32_t most = 0;  // tokens of a draft

  bool is_on() const { return kind != DraftKind::kNone; }
};

// "little", "ngram:12". kUsage otherwise.
Result<DraftOptions> ParseDraft(std::string_view text);

}  // namespace moestro
