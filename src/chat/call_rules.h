// SPDX-License-Identifier: MIT
// Grammar rules for the calls of tools, as a style writes them.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "chat/answer_style.h"
#include "chat/chat_types.h"
#include "schema/schema_grammar.h"

namespace moestro {

class CallRules {
 public:
  // All of them outlive this.
  CallRules(const AnswerStyle& style, GrammarRules& rules) : style_(style), rules_(rules) {}

  // A rule for one call of one of the tools, or, with `many`, for calls in a row.
  // REQUIRES: there are tools, and style.calls is not kNone.
  std::string Add(std::span<const Tool> tools, bool many);
  // Where such calls begin.
  std::vector<std::string> Triggers(std::span<const Tool> tools) const;
  // A rule for any text up to and with the first `mark`. REQUIRES: ASCII, not empty.
  std::string Until(std::string_view mark);

 private:
  std::string One(const Tool& tool);
  std::string Arguments(const Tool& tool);
  std::string MarkedArguments(const Tool& tool);
  std::string MarkedParameter(std::string_view key, JsonView schema);
  std::string MarkedString();
  std::string MarkedValue();
  std::string TaggedParameters(const Tool& tool);
  std::string TaggedParameter(std::string_view key, JsonView schema);
  std::string FreeParameters();
  std::string AnyValue();
  std::string KeyText(std::string_view key) const;
  std::string BehindKey() const;

  const AnswerStyle& style_;
  GrammarRules& rules_;
  std::map<std::string, std::string, std::less<>> until_;  // the rule of each mark
  bool has_marked_value_ = false;
};

// Of a property's schema: its values are text and nothing else.
bool IsTextSchema(JsonView schema);

}  // namespace moestro
