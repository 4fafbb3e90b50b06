// SPDX-License-Identifier: MIT
// Grammar rules for the calls of tools, as a style writes them. GrammarRules::left_out() has the
// keywords of a tool's schema that the rules do not enforce, behind the tool's name.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/work_limit.h"
#include "chat/answer_style.h"
#include "chat/chat_types.h"
#include "schema/schema_grammar.h"

namespace moestro {

class CallRules {
 public:
  // All references must outlive this.
  CallRules(const AnswerStyle& style, GrammarRules& rules, const WorkLimit& limit)
      : style_(style), rules_(rules), limit_(limit) {}

  // A rule for one call of one of the tools, or, with `many`, for calls in a row. REQUIRES: `tools`
  // is not empty, and style.calls is not kNone.
  std::string Add(std::span<const Tool> tools, bool many);
  // kUnsupported: no grammar can express a strict tool's schema. Restrictions lost by the style
  // alone (call_style.h) are left out for strict tools, too.
  const Status& refusal() const { return refusal_; }
  // Texts with which calls of the tools begin.
  std::vector<std::string> Triggers(std::span<const Tool> tools) const;
  // A rule for any text up to and with the first `mark`. REQUIRES: UTF-8, not empty.
  std::string Until(std::string_view mark);

 private:
  // A parameter that a tool's schema describes, or only requires.
  struct Parameter {
    SchemaProperty property;
    ValueShape shape;
    bool is_required = false;
  };
  std::string One(const Tool& tool);
  void CheckStrict(const Tool& tool);
  std::string Head(std::string_view name) const;
  std::string Arguments(const Tool& tool);
  std::string ObjectArguments(const Tool& tool);
  std::string WrittenArguments(const Tool& tool);
  std::string AnyArguments();
  std::string Separator() const;
  // The arguments within the marks that enclose all of them.
  std::string Enclosed(const std::string& arguments) const;
  std::vector<Parameter> ParametersOf(JsonView schema);
  std::string Written(const Parameter& parameter);
  std::string Tagged(const Parameter& parameter);
  std::string TaggedText(const Parameter& parameter);
  std::string Marked(const Parameter& parameter);
  std::string Python(const Parameter& parameter);
  std::string Nested(const Parameter& parameter);
  std::string Key(std::string_view key) const;
  // A rule for a value that is written as JSON; nullopt: no grammar can express it, which is noted.
  std::optional<std::string> JsonValue(const Parameter& parameter);
  // The values that an enum allows, as `text_of` writes its texts and `words` its other words.
  template <class Write>
  std::optional<std::string> Choices(const Parameter& parameter, const Write& write) const;
  void NoteFreeText(const Parameter& parameter);
  void NoteFree(const Parameter& parameter, std::string_view what);
  std::string MarkedString();
  std::string MarkedValue();
  std::string NestedValue();
  std::string AnyText();

  const AnswerStyle& style_;
  GrammarRules& rules_;
  const WorkLimit& limit_;
  std::map<std::string, std::string, std::less<>> until_;  // the rule of each mark
  Status refusal_;
  bool has_any_value_ = false;  // the rule of marked or nested values
};

}  // namespace moestro
