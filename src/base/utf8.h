// SPDX-License-Identifier: MIT
// Well-formed UTF-8 as the Unicode standard defines it (table 3-7).
#pragma once

#include <cstddef>
#include <string_view>

namespace moestro {

// The start of a text, read as one character.
struct Utf8Sequence {
  size_t length = 1;      // bytes to take
  bool is_valid = false;  // the bytes are a character
  bool is_open = false;   // valid so far, but the text ends before the character does
};
// REQUIRES: text is not empty.
Utf8Sequence ReadUtf8(std::string_view text);

// The byte offset of the first byte that is not valid UTF-8, or text.size().
size_t FindInvalidUtf8(std::string_view text);

}  // namespace moestro
