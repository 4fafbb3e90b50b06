// SPDX-License-Identifier: MIT
// Lines of words, as Python's module textwrap breaks them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace moestro::jinja {

struct WrapForm {
  size_t width = 79;  // characters; REQUIRES: not 0
  bool breaks_long_words = true;
  bool breaks_at_hyphens = true;
  std::string_view between = "\n";  // lines
};

// Blanks stay as they are, but for those at the ends of lines that were made.
std::string WrapWords(std::string_view text, const WrapForm& form);

}  // namespace moestro::jinja
