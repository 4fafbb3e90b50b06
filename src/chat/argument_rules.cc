// SPDX-License-Identifier: MIT
// The arguments of calls: as JSON, or each parameter in its style's spelling, in any order.
#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "base/result.h"
#include "base/text.h"
#include "chat/argument_scan.h"
#include "chat/call_rules.h"
#include "chat/json_scan.h"

namespace moestro {
namespace {

// A key in an object with marked strings, in GBNF. IsMarkedKey() accepts every such key.
constexpr std::string_view kMarkedKey = R"([^:{}\[\],<>" \t\r\n] [^:{}\[\],<>"\t\r\n]{0,100} ":")";
constexpr std::string_view kTagName = R"([^<>/" \t\r\n\[\]] [^<>"\t\r\n\[\]]{0,100})";
constexpr std::string_view kPythonName = "[a-zA-Z_] [a-zA-Z0-9_]{0,100}";

std::string InQuotes(std::string_view text) { return GrammarRules::Literal(text); }

// The texts of a list; other values that a client has put there do not count.
std::vector<std::string> TextsOf(const std::optional<JsonView>& list) {
  std::vector<std::string> texts;
  if (!list || list->kind() != JsonKind::kArray) return texts;
  for (size_t i = 0; i < list->size(); ++i) {
    if (auto text = list->At(i)->text()) texts.push_back(*std::move(text));
  }
  return texts;
}

bool IsTagKey(std::string_view key) {
  return !key.empty() && key.size() <= 256 && WithoutBlanks(key) == key &&
         key.find_first_of("<>\"\r\n\t") == std::string_view::npos;
}

bool CanBeWritten(const CallStyle& style, std::string_view key) {
  switch (style.shape) {
    case CallShape::kTags:
      return IsTagKey(key);
    case CallShape::kNested:
      return IsTagKey(key) && key.find_first_of("/[] ") == std::string_view::npos;
    case CallShape::kPython:
      return IsPythonName(key);
    default:
      return IsMarkedKey(key);
  }
}

// A JSON value in Python's spelling.
std::string PythonText(JsonView value) {
  if (value.kind() == JsonKind::kNull) return "None";
  if (value.kind() == JsonKind::kBoolean) return value.boolean() == true ? "True" : "False";
  return value.Dump();
}

}  // namespace

std::string CallRules::Arguments(const Tool& tool) {
  const bool is_json =
      style_.calls.shape == CallShape::kEnvelope || style_.calls.shape == CallShape::kChannels ||
      (style_.calls.shape == CallShape::kObject && style_.calls.string_mark.empty());
  return is_json ? ObjectArguments(tool) : WrittenArguments(tool);
}

std::string CallRules::ObjectArguments(const Tool& tool) {
  if (tool.parameters.empty()) return rules_.AddAnyObject();
  Result<std::string> rule = rules_.AddObjectSchema(tool.parameters, "arguments");
  if (rule) return *std::move(rule);
  rules_.NoteLeftOut(Format("#: all of it ({})", rule.error().message));
  return rules_.AddAnyObject();
}

// Makes a rule for each parameter; the parameters come in any order.
std::string CallRules::WrittenArguments(const Tool& tool) {
  const auto schema = Json::Parse(tool.parameters);
  const auto properties = schema ? schema->Find("properties") : std::nullopt;
  if (!properties || properties->kind() != JsonKind::kObject) {
    if (!tool.parameters.empty()) rules_.NoteLeftOut("#: all of it (it has no \"properties\")");
    return Enclosed(AnyArguments());
  }
  for (const std::string_view keyword :
       {"allOf", "anyOf", "oneOf", "not", "if", "$ref", "minProperties", "maxProperties",
        "patternProperties", "dependentRequired", "dependentSchemas"}) {
    if (schema->Find(keyword)) rules_.NoteLeftOut(Format("#: \"{}\"", keyword));
  }
  GrammarMembers list{.members = {}, .separator = Separator()};
  bool is_any_required = false;
  for (const Parameter& parameter : ParametersOf(schema->view())) {
    if (rules_.is_full() || !limit_.status()) break;
    if (!CanBeWritten(style_.calls, parameter.property.key)) {
      // a key that cannot be written in this style and read again
      if (parameter.is_required) NoteFree(parameter, "\"required\"");
      continue;
    }
    list.members.push_back({.rule = rules_.AddRule("parameter", Written(parameter)),
                            .is_required = parameter.is_required});
    is_any_required = is_any_required || parameter.is_required;
  }
  if (list.members.empty()) return Enclosed("\"\"");
  const std::string members = rules_.AddMembers(list, "parameters");
  return Enclosed(is_any_required ? members : members + "?");
}

std::string CallRules::Separator() const {
  if (!style_.calls.string_mark.empty()) return R"(",")";
  return style_.calls.shape == CallShape::kPython ? R"("," " "?)" : "";
}

std::string CallRules::Enclosed(const std::string& arguments) const {
  return style_.calls.string_mark.empty() ? arguments : Format(R"("{{" {} "}}")", arguments);
}

std::vector<CallRules::Parameter> CallRules::ParametersOf(JsonView schema) {
  const std::vector<std::string> texts = TextsOf(schema.Find("required"));
  const std::set<std::string> required(texts.begin(), texts.end());
  std::vector<Parameter> parameters;
  std::set<std::string_view> described;
  const auto properties = schema.Find("properties");
  for (const auto& [key, view] : properties->members()) {
    if (!limit_.Spend(1 + key.size())) break;
    Parameter parameter{.property = {.root = schema, .key = key, .view = view},
                        .shape = {},
                        .is_required = required.contains(std::string(key))};
    auto shape = ShapeOf(parameter.property, limit_);
    if (shape) {
      parameter.shape = *std::move(shape);
    } else {
      NoteFree(parameter, Format("all of it ({})", shape.error().message));
    }
    described.insert(key);
    parameters.push_back(std::move(parameter));
  }
  for (const std::string& name : required) {
    if (!described.contains(name)) {
      rules_.NoteLeftOut(Format("#: \"required\" of \"{}\", which it does not describe", name));
    }
  }
  return parameters;
}

// Arguments for a schema without properties: any names and values.
std::string CallRules::AnyArguments() {
  const CallStyle& style = style_.calls;
  if (!style.string_mark.empty()) {
    const std::string pair = Format("{} {}", kMarkedKey, MarkedValue());
    return Format(R"(({} ("," {})*)?)", pair, pair);
  }
  if (style.shape == CallShape::kPython) {
    rules_.AddAnyObject();
    const std::string pair =
        Format(R"({} "=" (json-value | "True" | "False" | "None"))", kPythonName);
    return Format(R"(({} ("," " "? {})*)?)", pair, pair);
  }
  if (style.shape == CallShape::kNested) return NestedValue() + "*";
  const std::string_view quote = style.key_end.starts_with('"') ? "\\\"" : "";
  const std::string attribute = style.tag_end.empty()
                                    ? ""
                                    : Format(" ({} | {}) {}", InQuotes(style.text_attribute),
                                             style.json_attribute, InQuotes(style.tag_end));
  const std::string_view end = style.key_end;
  return Format("({} [^<>\\n{}]+ {}{} {} {})*", InQuotes(style.key_begin), quote, InQuotes(end),
                attribute, InQuotes(Format("{}{}", style.behind_key, style.value_begin)),
                AnyText());
}

std::string CallRules::Written(const Parameter& parameter) {
  switch (style_.calls.shape) {
    case CallShape::kTags:
      return Tagged(parameter);
    case CallShape::kNested:
      return Nested(parameter);
    case CallShape::kPython:
      return Python(parameter);
    default:
      return Marked(parameter);
  }
}

void CallRules::NoteFree(const Parameter& parameter, std::string_view what) {
  rules_.NoteLeftOut(Format("#/properties/{}: {}", parameter.property.key, what));
}

void CallRules::NoteFreeText(const Parameter& parameter) {
  for (const std::string& limit : parameter.shape.text_limits) rules_.NoteLeftOut(limit);
}

std::optional<std::string> CallRules::JsonValue(const Parameter& parameter) {
  Result<std::string> rule = rules_.AddProperty(parameter.property, "value");
  if (rule) return *std::move(rule);
  NoteFree(parameter, Format("all of it ({})", rule.error().message));
  return std::nullopt;
}

template <class Write>
std::optional<std::string> CallRules::Choices(const Parameter& parameter,
                                              const Write& write) const {
  if (!parameter.shape.values) return std::nullopt;
  std::vector<std::string> choices;
  for (const JsonView value : *parameter.shape.values) {
    const std::optional<std::string> text = write(value);
    if (text) choices.push_back(InQuotes(*text));
  }
  if (choices.empty()) return std::nullopt;
  return "(" + Joined(choices, " | ") + ")";
}

// Any text, up to the next argument.
std::string CallRules::AnyText() {
  const CallStyle& style = style_.calls;
  if (style.behind_value.empty()) return Until(style.value_end);
  return Format("{} {}", Until(style.value_end), InQuotes(style.behind_value));
}

std::string CallRules::Key(std::string_view key) const {
  return InQuotes(Format("{}{}{}", style_.calls.key_begin, key, style_.calls.key_end));
}

std::string CallRules::TaggedText(const Parameter& parameter) {
  const CallStyle& style = style_.calls;
  const std::string end =
      InQuotes(Format("{}{}{}", style.before_value_end, style.value_end, style.behind_value));
  const auto choices = Choices(parameter, [&](JsonView value) -> std::optional<std::string> {
    std::string text = value.text().value_or(value.Dump());
    if (text.contains(style.value_end)) return std::nullopt;
    return text;
  });
  if (choices) return Format("{} {}", *choices, end);
  NoteFreeText(parameter);
  return AnyText();
}

// A value that may be text is any text: the schema decides its kind when the call is read.
std::string CallRules::Tagged(const Parameter& parameter) {
  const CallStyle& style = style_.calls;
  const std::string end =
      InQuotes(Format("{}{}{}", style.before_value_end, style.value_end, style.behind_value));
  const std::string tail =
      InQuotes(Format("{}{}{}", style.tag_end, style.behind_key, style.value_begin));
  const bool has_kinds = !style.tag_end.empty();
  const bool may_be_text = parameter.shape.Has(JsonKind::kText);
  std::optional<std::string> json;
  if (!may_be_text || (has_kinds && !parameter.shape.is_text())) json = JsonValue(parameter);
  if (!has_kinds) {
    const std::string value = json ? Format("{} {}", *json, end) : TaggedText(parameter);
    return Format("{} {} {}", Key(parameter.property.key), tail, value);
  }
  std::vector<std::string> choices;
  if (may_be_text || !json) {
    choices.push_back(
        Format("{} {} {}", InQuotes(style.text_attribute), tail, TaggedText(parameter)));
  }
  if (json) choices.push_back(Format("{} {} {} {}", style.json_attribute, tail, *json, end));
  return Format("{} ({})", Key(parameter.property.key), Joined(choices, " | "));
}

std::string CallRules::MarkedString() {
  const std::string_view mark = style_.calls.string_mark;
  return Format("{} {}", InQuotes(mark), Until(mark));
}

// Any value with marked strings, also in objects and arrays.
std::string CallRules::MarkedValue() {
  constexpr std::string_view kName = "marked-value";
  if (std::exchange(has_any_value_, true)) return std::string(kName);
  const std::string pair = Format("({} {})", kMarkedKey, kName);
  const std::string body = Format(
      R"({} | "-"? ("0" | [1-9] [0-9]{{0,18}}) ("." [0-9]{{1,24}})? ([eE] [-+]? [0-9]{{1,3}})?)"
      R"( | "true" | "false" | "null")"
      R"( | "[" ({} ("," {})*)? "]" | "{{" ({} ("," {})*)? "}}")",
      MarkedString(), kName, kName, pair, pair);
  CHECK(rules_.AddRule(kName, body) == kName);
  return std::string(kName);
}

// A parameter with marked strings. The schema is not enforced within objects and arrays.
std::string CallRules::Marked(const Parameter& parameter) {
  const std::string head = InQuotes(Format("{}:", parameter.property.key));
  const ValueShape& shape = parameter.shape;
  const std::string_view mark = style_.calls.string_mark;
  const auto choices = Choices(parameter, [&](JsonView value) -> std::optional<std::string> {
    if (value.kind() == JsonKind::kObject || value.kind() == JsonKind::kArray) return std::nullopt;
    const auto text = value.text();
    if (!text) return value.Dump();
    if (text->contains(mark)) return std::nullopt;
    return Format("{}{}{}", mark, *text, mark);
  });
  if (choices) return Format("{} {}", head, *choices);
  if (shape.is_text()) {
    NoteFreeText(parameter);
    return Format("{} {}", head, MarkedString());
  }
  const bool has_parts = shape.Has(JsonKind::kObject) || shape.Has(JsonKind::kArray);
  if (!has_parts && !shape.Has(JsonKind::kText)) {
    if (const auto rule = JsonValue(parameter)) return Format("{} {}", head, *rule);
  } else if (shape.kinds != kAllKinds) {
    NoteFree(parameter, "what lies in its objects and arrays");
  }
  return Format("{} {}", head, MarkedValue());
}

std::string CallRules::Python(const Parameter& parameter) {
  const std::string head = InQuotes(Format("{}=", parameter.property.key));
  const auto choices = Choices(
      parameter, [](JsonView value) -> std::optional<std::string> { return PythonText(value); });
  if (choices) return Format("{} {}", head, *choices);
  std::vector<std::string> values;
  const ValueShape& shape = parameter.shape;
  if (shape.Has(JsonKind::kBoolean)) values.emplace_back(R"("True" | "False")");
  if (shape.Has(JsonKind::kNull)) values.emplace_back(R"("None")");
  const KindSet words = KindBit(JsonKind::kBoolean) | KindBit(JsonKind::kNull);
  if ((shape.kinds & ~words) != 0) {
    if (auto rule = JsonValue(parameter)) {
      values.push_back(*std::move(rule));
    } else {
      rules_.AddAnyObject();
      values.emplace_back("json-value");
    }
  }
  return Format("{} ({})", head, values.empty() ? "\"\"" : Joined(values, " | "));
}

// A tag with text, or with tags of any names.
std::string CallRules::NestedValue() {
  constexpr std::string_view kName = "nested-value";
  if (std::exchange(has_any_value_, true)) return std::string(kName);
  const CallStyle& style = style_.calls;
  const std::string begin = InQuotes(style.key_begin);
  const std::string end = Format("{} {}", kTagName, InQuotes(style.key_end));
  // The text up to the mark that all tags begin with.
  const std::string_view mark = style.key_begin.substr(0, style.key_begin.size() - 1);
  const std::string text = Format("{} {} {}", Until(mark), InQuotes("</"), end);
  const std::string body =
      Format("{} {} ({} | {}+ {} {})", begin, end, text, kName, InQuotes(style.value_end), end);
  CHECK(rules_.AddRule(kName, body) == kName);
  return std::string(kName);
}

std::string CallRules::Nested(const Parameter& parameter) {
  const CallStyle& style = style_.calls;
  const std::string_view key = parameter.property.key;
  const std::string end = InQuotes(Format("{}{}{}", style.value_end, key, style.key_end));
  const ValueShape& shape = parameter.shape;
  const auto choices = Choices(parameter, [&](JsonView value) -> std::optional<std::string> {
    if (value.kind() == JsonKind::kObject || value.kind() == JsonKind::kArray) return std::nullopt;
    std::string text = value.text().value_or(value.Dump());
    if (text.contains(style.value_end)) return std::nullopt;
    return text;
  });
  if (choices) return Format("{} {} {}", Key(key), *choices, end);
  const std::string_view mark = style.key_begin.substr(0, style.key_begin.size() - 1);
  const std::string text =
      Format("{} {}", Until(mark), InQuotes(Format("</{}{}", key, style.key_end)));
  const bool has_parts = shape.Has(JsonKind::kObject) || shape.Has(JsonKind::kArray);
  if (!has_parts && !shape.Has(JsonKind::kText)) {
    if (const auto rule = JsonValue(parameter)) return Format("{} {} {}", Key(key), *rule, end);
  }
  if (shape.Has(JsonKind::kText)) NoteFreeText(parameter);
  if (!has_parts) return Format("{} {}", Key(key), text);
  if (shape.kinds != kAllKinds) NoteFree(parameter, "what lies in its objects and arrays");
  const std::string parts = Format("{}* {}", NestedValue(), end);
  const bool may_be_scalar =
      (shape.kinds & ~(KindBit(JsonKind::kObject) | KindBit(JsonKind::kArray))) != 0;
  return may_be_scalar ? Format("{} ({} | {})", Key(key), text, parts)
                       : Format("{} {}", Key(key), parts);
}

}  // namespace moestro
