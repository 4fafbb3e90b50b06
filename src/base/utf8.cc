// SPDX-License-Identifier: MIT
#include "base/utf8.h"

#include <cstdint>

namespace moestro {

// The first byte fixes the length and the range of the second byte, later bytes are 80..BF.
Utf8Sequence ReadUtf8(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return {.length = 1, .is_valid = true};
  size_t length = 0;
  if (first >= 0xC2 && first <= 0xDF)
    length = 2;
  else if (first >= 0xE0 && first <= 0xEF)
    length = 3;
  else if (first >= 0xF0 && first <= 0xF4)
    length = 4;
  else
    return {};
  uint8_t low = 0x80;
  uint8_t high = 0xBF;
  if (first == 0xE0) low = 0xA0;   // overlong
  if (first == 0xED) high = 0x9F;  // surrogates
  if (first == 0xF0) low = 0x90;   // overlong
  if (first == 0xF4) high = 0x8F;  // past U+10FFFF
  for (size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {.length = i, .is_open = true};
    if (byte(i) < low || byte(i) > high) return {.length = i};
    low = 0x80;
    high = 0xBF;
  }
  return {.length = length, .is_valid = true};
}

size_t FindInvalidUtf8(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Utf8Sequence sequence = ReadUtf8(text.substr(at));
    if (!sequence.is_valid) return at;
    at += sequence.length;
  }
  return at;
}

}  // namespace moestro
