// SPDX-License-Identifier: MIT
#include "base/visible.h"

#include <cstdint>
#include <cstdio>

#include "base/format.h"
#include "base/utf8.h"

namespace moestro {
namespace {

// REQUIRES: `text` is one character of valid UTF-8.
uint32_t CodePointOf(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(text[i])); };
  if (text.size() == 1) return byte(0);
  uint32_t code = byte(0) & (0xFFU >> (text.size() + 1));
  for (size_t i = 1; i < text.size(); ++i) code = (code << 6U) | (byte(i) & 0x3FU);
  return code;
}

bool IsObeyed(uint32_t code) {
  return code < 0x20 || (code >= 0x7F && code <= 0x9F) ||                           // C0, DEL, C1
         code == 0x2028 || code == 0x2029 ||                                        // ends of lines
         (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);  // directions
}

std::string Escaped(std::string_view text, std::string_view kept) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Sequence next = ReadUtf8(text);
    const std::string_view bytes = text.substr(0, next.is_valid ? next.length : 1);
    text.remove_prefix(bytes.size());
    if (!next.is_valid) {
      out += Format("\\x{:02x}", static_cast<uint8_t>(bytes[0]));
    } else if (kept.contains(bytes[0])) {
      out += bytes;
    } else if (const uint32_t code = CodePointOf(bytes); IsObeyed(code)) {
      out += Format("\\u{:04x}", code);
    } else {
      out += bytes;
    }
  }
  return out;
}

}  // namespace

std::string Visible(std::string_view text) { return Escaped(text, ""); }

std::string VisibleLines(std::string_view text) { return Escaped(text, "\n\t"); }

std::string VisibleStream::Add(std::string_view part) {
  std::string out;
  out.reserve(part.size());
  for (const char c : part) {
    const auto byte = static_cast<uint8_t>(c);
    const bool is_c1 = may_be_control_ && byte >= 0x80 && byte <= 0x9F;
    may_be_control_ = byte == 0xC2;
    if (is_c1 || (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7F) {
      out += is_c1 ? "?" : Format("\\u{:04x}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

void PrintOnStderr(std::string_view text) {
  const std::string shown = VisibleLines(text);
  std::fwrite(shown.data(), 1, shown.size(), stderr);
}

}  // namespace moestro
