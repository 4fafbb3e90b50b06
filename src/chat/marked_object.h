// SPDX-License-Identifier: MIT
// Objects as Gemma 4 spells the arguments of a call: keys without quotes, strings between marks.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "chat/json_scan.h"

namespace moestro {

struct MarkedScan {
  Scan state = Scan::kOpen;
  size_t length = 0;  // bytes of the object if it is whole, else of the part that was read
  // The object as JSON, as far as it is certain; more text never changes this beginning.
  std::string json;
};

// Whether a key can be written without quotes: not empty, no mark of the spelling, no blank at its
// beginning, not longer than a sentence.
bool IsMarkedKey(std::string_view key);

// `text` begins with the object's brace. Deeper nesting than Json::kMaxDepth is broken. Does not
// recurse. REQUIRES: `mark` is not empty.
MarkedScan ScanMarked(std::string_view text, std::string_view mark);

}  // namespace moestro
