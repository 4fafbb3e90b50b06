// SPDX-License-Identifier: MIT
#include "chat/answer_grammar.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>
#include <span>
#include <string_view>

#include "base/json.h"
#include "base/text.h"
#include "chat/call_rules.h"
#include "schema/schema_grammar.h"

namespace moestro {
namespace {

constexpr std::string_view kClientRoot = "client-root";

// The tools that may be called.
std::span<const Tool> Allowed(const ChatInput& input) {
  const std::span<const Tool> tools(input.tools);
  if (input.tool_use == ToolUse::kNone) return {};
  if (input.tool_use != ToolUse::kNamed) return tools;
  const auto named = std::ranges::find(input.tools, input.named_tool, &Tool::name);
  return tools.subspan(static_cast<size_t>(named - input.tools.begin()),
                       named == input.tools.end() ? 0 : 1);
}

// The input's parts that a grammar needs, with the allowed tools alone.
ChatInput WithAllowedAlone(const ChatInput& input) {
  ChatInput fewer;
  fewer.tool_use = input.tool_use;
  fewer.parallel_calls = input.parallel_calls;
  const std::set<std::string_view> allowed(input.allowed_tools.begin(), input.allowed_tools.end());
  for (const Tool& tool : input.tools) {
    if (allowed.contains(tool.name)) fewer.tools.push_back(tool);
  }
  return fewer;
}

Status Check(const ChatInput& input, const OutputForm& form) {
  const bool is_demanded =
      input.tool_use == ToolUse::kRequired || input.tool_use == ToolUse::kNamed;
  const bool has_tools = !Allowed(input).empty();
  if (is_demanded && !has_tools) {
    return Fail(Errc::kInvalidRequest, "a call of {} is required, which is not among the tools",
                input.tool_use == ToolUse::kNamed ? Format("tool {}", input.named_tool)
                                                  : std::string("a tool"));
  }
  if (has_tools && form.kind == OutputForm::Kind::kGrammar) {
    return Fail(Errc::kInvalidRequest,
                "a grammar cannot go with tools; leave one out, or set tool_choice to none");
  }
  return {};
}

bool IsNameCharacter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
}

// The end of a quoted text, a class or a comment that begins at `at`.
size_t EndOfPart(std::string_view text, size_t at) {
  const char c = text[at];
  if (c == '#') return std::min(text.find('\n', at), text.size());
  const char end = c == '[' ? ']' : '"';
  for (++at; at < text.size() && text[at] != end; ++at) {
    if (text[at] == '\\') ++at;
  }
  return std::min(at + 1, text.size());
}

// A client's grammar with another name for its root.
std::string RenameRoot(std::string_view text) {
  std::string renamed;
  for (size_t at = 0; at < text.size();) {
    size_t end = at + 1;
    if (std::string_view("\"[#").contains(text[at])) {
      end = EndOfPart(text, at);
    } else if (IsNameCharacter(text[at])) {
      while (end < text.size() && IsNameCharacter(text[end])) ++end;
    }
    const std::string_view part = text.substr(at, end - at);
    renamed += part == "root" ? kClientRoot : part;
    at = end;
  }
  return renamed;
}

class GrammarMaker {
 public:
  GrammarMaker(const AnswerStyle& style, const ChatInput& input, bool may_think,
               const WorkLimit& limit)
      : style_(style),
        input_(input),
        may_think_(may_think),
        limit_(limit),
        rules_(limit, GrammarRules::Unsaid::kLeftOut),
        calls_(style, rules_, limit_) {}

  Result<AnswerGrammar> Make(const OutputForm& form) {
    const bool is_text = form.kind == OutputForm::Kind::kText;
    const std::span<const Tool> tools = Allowed(input_);
    const bool has_calls = !tools.empty();
    const bool is_lazy = has_calls && input_.tool_use == ToolUse::kAuto && is_text;
    AnswerGrammar grammar;
    grammar.has_calls = has_calls;
    if (!has_calls && is_text) return grammar;
    // Added first, so that no other rule takes the names.
    const std::string thoughts = is_lazy ? "" : Thoughts();
    std::string body;
    // A named tool is called exactly once.
    const bool may_repeat = input_.parallel_calls && input_.tool_use != ToolUse::kNamed;
    if (has_calls) {
      body = calls_.Add(tools, may_repeat);
      TRY_STATUS(CheckCalls());
      TRY_STATUS(calls_.refusal());
    }
    if (has_calls && input_.tool_use != ToolUse::kAuto) {
      rules_.AddRule("root", thoughts + body);
    } else if (is_lazy) {
      // The trigger may have begun the header.
      const std::string begun =
          has_channels() ? GrammarRules::Literal(Format("{}assistant", kStartMark)) + "? " : "";
      rules_.AddRule("root", begun + body);
      grammar.triggers = calls_.Triggers(tools);
      if (may_think_) grammar.sleeps_in = Marks();
    } else {
      TRY(const std::string content, Content(form));
      rules_.AddRule("root", Format("{}({}{})", thoughts, has_calls ? body + " | " : "", content));
    }
    grammar.text = rules_.Text();
    grammar.left_out = rules_.left_out();
    if (form.kind == OutputForm::Kind::kGrammar) grammar.text += RenameRoot(form.definition) + "\n";
    return grammar;
  }

 private:
  // Refuses tools whose grammar took too much time or room. A schema that no grammar can express is
  // no error: any object is allowed then.
  Status CheckCalls() const {
    TRY_STATUS(limit_.status());
    if (!rules_.is_full()) return {};
    return Fail(Errc::kInvalidRequest,
                "the tools need a grammar of more than {} bytes; send fewer, or with smaller "
                "schemas",
                GrammarRules::kLongestText);
  }
  bool has_channels() const { return style_.calls.shape == CallShape::kChannels; }

  ThoughtMarks Marks() const {
    if (has_channels()) {
      return {.begin = Format("{}analysis{}", kChannelMark, kMessageMark),
              .end = std::string(kEndMark),
              .is_open = style_.begins_in_reasoning,
              .is_anywhere = true};
    }
    return {.begin = style_.reasoning_begin,
            .end = style_.reasoning_end,
            .is_open = style_.begins_in_reasoning};
  }

  // The thoughts with which an answer may begin, as the beginning of a rule's body.
  std::string Thoughts() {
    if (!may_think_) return {};
    if (has_channels()) {
      return Format(
          "({} {} {})? ", GrammarRules::Literal(Format("{}analysis{}", kChannelMark, kMessageMark)),
          calls_.Until(kEndMark), GrammarRules::Literal(Format("{}assistant", kStartMark)));
    }
    std::string end = calls_.Until(style_.reasoning_end);
    if (!style_.turn_begin.empty()) end += " " + GrammarRules::Literal(style_.turn_begin) + "?";
    if (style_.begins_in_reasoning) return Format("{} \"\\n\"? \"\\n\"? ", end);
    return Format("({} {} \"\\n\"? \"\\n\"?)? ", GrammarRules::Literal(style_.reasoning_begin),
                  end);
  }

  Result<std::string> Content(const OutputForm& form) {
    std::string rule(kClientRoot);
    if (form.kind == OutputForm::Kind::kJsonObject) rule = rules_.AddAnyObject();
    if (form.kind == OutputForm::Kind::kJsonSchema) {
      if (form.is_strict) rules_.SetUnsaid(GrammarRules::Unsaid::kRefused);
      TRY(rule, rules_.AddSchema(form.definition, "answer"));
    }
    if (!style_.content_begin.empty()) {
      return Format("({} \"\\n\"?)? {} (\"\\n\"? {})?", GrammarRules::Literal(style_.content_begin),
                    rule, GrammarRules::Literal(style_.content_end));
    }
    if (!has_channels()) return rule;
    return Format("{} {}", GrammarRules::Literal(Format("{}final{}", kChannelMark, kMessageMark)),
                  rule);
  }

  const AnswerStyle& style_;
  const ChatInput& input_;
  bool may_think_;
  WorkLimit limit_;
  GrammarRules rules_;
  CallRules calls_;
};

}  // namespace

Result<AnswerGrammar> MakeAnswerGrammar(const AnswerStyle& style, const ChatInput& input,
                                        const OutputForm& form, bool may_think,
                                        const WorkLimit& limit) {
  if (!input.allowed_tools.empty()) {
    return MakeAnswerGrammar(style, WithAllowedAlone(input), form, may_think, limit);
  }
  TRY_STATUS(Check(input, form));
  return GrammarMaker(style, input, may_think, limit).Make(form);
}

ToolShape ShapeOfTool(const Tool& tool, const WorkLimit& limit) {
  ToolShape shape{.name = tool.name, .text_parameters = {}};
  const auto schema = Json::Parse(tool.parameters);
  const auto properties = schema ? schema->Find("properties") : std::nullopt;
  if (!properties) return shape;
  for (const auto& [key, view] : properties->members()) {
    const auto values = ShapeOf({.root = schema->view(), .key = key, .view = view}, limit);
    if (!values) continue;
    if (values->is_text()) {
      shape.text_parameters.emplace_back(key);
    } else if (values->kinds != kAllKinds) {
      ToolShape::Described described{.name = std::string(key), .kinds = {}};
      for (const JsonKind kind : kEveryJsonKind) {
        if (values->Has(kind)) described.kinds.push_back(kind);
      }
      shape.other_parameters.push_back(std::move(described));
    }
  }
  return shape;
}

}  // namespace moestro
