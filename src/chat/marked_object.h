// SPDX-License-Identifier: MIT
// Objects as Gemma 4 spells the arguments of a call: keys without quotes, strings between marks.
#pragma once

#include <string_view>

#include "chat/json_scan.h"

namespace moestro {

// Whether a key can be written without quotes: not empty, no mark of the spelling, no blank at its
// beginning, not longer than a sentence.
bool IsMarkedKey(std::string_view key);

// `text` begins with the object's brace. REQUIRES: `mark` is not empty.
SpelledScan ScanMarked(std::string_view text, std::string_view mark);

}  // namespace moestro
