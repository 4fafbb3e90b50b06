// SPDX-License-Identifier: MIT
#include "schema/json_rules.h"

#include <array>

namespace moestro {

// Numbers end before they are beyond a double: 19 digits and an exponent of at most 279. Strings
// have no half surrogate pairs, neither as bytes nor as escapes, since most parsers refuse such
// strings.
std::span<const JsonRule> JsonRules() {
  static constexpr std::array<JsonRule, 13> kRules = {{
      {"json-ws", R"(" "? | "\n" [ \t]{0,32})"},
      {"json-value",
       R"(json-object | json-array | json-string | json-number | "true" | "false" | "null")"},
      {"json-object", R"("{" json-ws ( json-member ( "," json-ws json-member )* json-ws )? "}")"},
      {"json-member", R"(json-string ":" json-ws json-value)"},
      {"json-array", R"("[" json-ws ( json-value ( "," json-ws json-value )* json-ws )? "]")"},
      {"json-string", R"("\"" json-char* "\"")"},
      {"json-char",
       R"([\x20-\x21\x23-\x5B\x5D-\uD7FF\uE000-\U0010FFFF] | "\\" ( ["\\/bfnrt] | json-unit ))"},
      {"json-unit", R"("u" ( [0-9a-cA-CeEfF] json-hex{3} | [dD] [0-7] json-hex{2} | )"
                    R"([dD] [89abAB] json-hex{2} "\\u" [dD] [c-fC-F] json-hex{2} ))"},
      {"json-hex", "[0-9a-fA-F]"},
      {"json-integer", R"("-"? ( "0" | [1-9] [0-9]{0,18} ))"},
      {"json-number", R"(json-integer ( "." [0-9]{1,24} )? ( [eE] [+-]? json-exponent )?)"},
      {"json-exponent", R"([0-9] [0-9]? | "1" [0-9] [0-9] | "2" [0-7] [0-9])"},
      {"json-boolean", R"("true" | "false")"},
  }};
  return kRules;
}

}  // namespace moestro
