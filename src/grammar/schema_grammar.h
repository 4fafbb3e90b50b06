// SPDX-License-Identifier: MIT
// GBNF grammars for libllama's grammar sampler, made of JSON schemas: a text that a grammar allows
// is JSON that its schema accepts.
//
// Thread rule: any one thread at a time.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/result.h"

namespace moestro {

class GrammarRules {
 public:
  // Adds rules for the JSON texts that a schema accepts, and gives the first one's name, which
  // begins with `name`. kInvalidRequest: no schema, or one that accepts nothing; kUnsupported for a
  // keyword that restricts and cannot be said in a grammar. Both name the place in the schema.
  Result<std::string> AddSchema(std::string_view schema, std::string_view name);
  // Of any JSON object.
  std::string AddAnyObject();
  // Adds `name ::= body`; the name is changed if another rule has it. Gives the name.
  std::string AddRule(std::string_view name, std::string_view body);
  // A text as GBNF writes it, quoted.
  static std::string Literal(std::string_view text);
  // All rules, one a line. REQUIRES: there is a rule "root".
  std::string Text() const;

 private:
  std::map<std::string, std::string, std::less<>> rules_;
};

}  // namespace moestro
