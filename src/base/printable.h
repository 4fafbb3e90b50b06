// SPDX-License-Identifier: MIT
// Text from a file made fit for a one-line message on a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace moestro {

// Everything but printable ASCII becomes '?'; longer text is cut and ends in "...".
inline std::string Printable(std::string_view text, size_t limit = 96) {
  std::string out(text.substr(0, limit));
  for (char& c : out) {
    if (c < ' ' || c > '~') c = '?';
  }
  if (text.size() > limit) out += "...";
  return out;
}

}  // namespace moestro
