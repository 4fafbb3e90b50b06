// SPDX-License-Identifier: MIT
// Joins token pieces into whole UTF-8 characters: a character may be spread over several tokens,
// and a terminal must never get half of a character.
#pragma once

#include <string>
#include <string_view>

namespace moestro {

class Utf8Stream {
 public:
  // The whole characters that `bytes` completes. Bytes that can never become one (stray
  // continuation bytes, overlong forms, surrogates) come out as U+FFFD.
  std::string Push(std::string_view bytes);
  // U+FFFD for an incomplete character at the end; empty if the last character was complete.
  std::string Flush();

 private:
  std::string pending_;  // the start of one character, at most 3 bytes
};

}  // namespace moestro
