// SPDX-License-Identifier: MIT
// GBNF rules for JSON as such. Between values one blank may stand, or a line end and up to 32
// blanks, as writers of JSON put them; without a bound a model may write blanks for ever.
#pragma once

#include <span>
#include <string_view>

namespace moestro {

struct JsonRule {
  std::string_view name;
  std::string_view body;
};

// All begin with "json-".
std::span<const JsonRule> JsonRules();

}  // namespace moestro
