// SPDX-License-Identifier: MIT
// Cuts a template into tokens, as Jinja does with trim_blocks and lstrip_blocks: the line end
// behind a block tag and blanks before the tag on its line are no text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moestro::jinja {

struct Token {
  enum class Kind : uint8_t {
    kText,  // outside of tags
    kPrintBegin,
    kPrintEnd,
    kBlockBegin,
    kBlockEnd,
    kName,
    kString,  // characters of a literal, escapes resolved
    kInteger,
    kFloat,
    kOperator,
    kEnd,  // end of the template
  };
  Kind kind = Kind::kEnd;
  std::string text;
  uint32_t line = 1;
};

// Throws Failure. The last token is kEnd.
std::vector<Token> CutIntoTokens(std::string_view text);

}  // namespace moestro::jinja
