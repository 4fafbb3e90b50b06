// SPDX-License-Identifier: MIT
// GBNF rules for JSON as such. Between values there may be one blank, or a line end and up to 32
// blanks: what writers of JSON do; without a bound a model may write blanks for ever.
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
