// SPDX-License-Identifier: MIT
#include "chat/call_rules.h"

#include <algorithm>
#include <optional>
#include <ranges>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/format.h"
#include "base/text.h"
#include "chat/call_scan.h"
#include "chat/marked_object.h"

namespace moestro {
namespace {

// Of an object with marked strings, in GBNF. IsMarkedKey() takes all of them.
constexpr std::string_view kMarkedKey = R"([^:{}\[\],<>" \t\r\n] [^:{}\[\],<>"\t\r\n]{0,100} ":")";

std::string Quoted(std::string_view text) { return GrammarRules::Literal(text); }

// The state of a search for `mark` after `matched` of its characters and then `c`.
size_t NextState(std::string_view mark, size_t matched, char c) {
  const std::string seen = std::string(mark.substr(0, matched)) + c;
  for (size_t n = std::min(seen.size(), mark.size()); n > 0; --n) {
    if (std::string_view(seen).ends_with(mark.substr(0, n))) return n;
  }
  return 0;
}

std::string CharacterCode(char c) { return Format("\\x{:02X}", static_cast<unsigned char>(c)); }

// The texts of a list; what else a client has put there does not count.
std::vector<std::string> TextsOf(const std::optional<JsonView>& list) {
  std::vector<std::string> texts;
  if (!list || list->kind() != JsonKind::kArray) return texts;
  for (size_t i = 0; i < list->size(); ++i) {
    if (auto text = list->At(i)->text()) texts.push_back(*std::move(text));
  }
  return texts;
}

std::set<std::string> RequiredOf(const Json& schema) {
  std::vector<std::string> names = TextsOf(schema.Find("required"));
  return {names.begin(), names.end()};
}

}  // namespace

bool IsTextSchema(JsonView schema) {
  const auto type = schema.Find("type");
  if (type && type->text() == "string") return true;
  const auto values = schema.Find("enum");
  if (type || !values || values->kind() != JsonKind::kArray || values->size() == 0) return false;
  return TextsOf(values).size() == values->size();
}

std::string CallRules::Add(std::span<const Tool> tools, bool many) {
  CHECK(!tools.empty());
  std::vector<std::string> choices;
  for (const Tool& tool : tools) {
    if (rules_.is_full()) break;
    choices.push_back(rules_.AddRule("call", One(tool)));
  }
  const std::string one = rules_.AddRule("calls-one", Joined(choices, " | "));
  const CallStyle& style = style_.calls;
  if (style.shape == CallShape::kChannels) return one;
  const std::string row = many ? Format("{} ({} {})*", one, style.between, one) : one;
  if (!style.is_around_all) return rules_.AddRule("calls", row);
  const std::string_view line = style.has_lines ? "\n" : "";
  std::string begin = Quoted(Format("{}{}", style.begin, line));
  if (style.may_lack_begin) begin += "?";
  if (!style.list_begin.empty()) begin += " \" \"? " + Quoted(style.list_begin);
  std::string end;
  for (const std::string_view mark : {style.list_end, style.end}) {
    if (!mark.empty()) end += " " + Quoted(Format("{}{}", line, mark));
  }
  return rules_.AddRule("calls", Format("{} {}{}", begin, row, end));
}

std::vector<std::string> CallRules::Triggers(std::span<const Tool> tools) const {
  if (style_.calls.shape == CallShape::kChannels) return ChannelCallBegins();
  std::vector<std::string> triggers{std::string(style_.calls.begin)};
  if (style_.calls.is_bare()) {
    for (const Tool& tool : tools) triggers.push_back(BareBegin(tool.name));
  }
  return triggers;
}

std::string CallRules::One(const Tool& tool) {
  const CallStyle& style = style_.calls;
  if (style.shape == CallShape::kChannels) {
    return Format("({} | {}) {} {}",
                  Quoted(Format("{}commentary {}{}", kChannelMark, kRecipient, tool.name)),
                  Quoted(Format(" {}{}{}commentary", kRecipient, tool.name, kChannelMark)),
                  Format("(\" \" {}? \"json\")? {}", Quoted(kConstrainMark), Quoted(kMessageMark)),
                  Arguments(tool));
  }
  AroundArguments around = TextAround(style, tool.name);
  if (!style.is_around_all) {
    const std::string_view line = style.has_lines ? "\n" : "";
    around.before = Format("{}{}{}", style.begin, line, around.before);
    around.behind = Format("{}{}{}", around.behind, line, style.end);
  }
  const bool has_tags = style.shape == CallShape::kTags;
  const std::string arguments = has_tags ? TaggedParameters(tool) : Arguments(tool);
  const std::string before = around.before.empty() ? "" : Quoted(around.before) + " ";
  const std::string behind = around.behind.empty() ? "" : " " + Quoted(around.behind);
  return before + arguments + behind;
}

std::string CallRules::MarkedString() {
  const std::string_view mark = style_.calls.string_mark;
  return Format("{} {}", Quoted(mark), Until(mark));
}

// Any value with marked strings, in objects and arrays of such.
std::string CallRules::MarkedValue() {
  constexpr std::string_view kName = "marked-value";
  if (std::exchange(has_marked_value_, true)) return std::string(kName);
  const std::string pair = Format("({} {})", kMarkedKey, kName);
  const std::string body = Format(
      R"({} | "-"? ("0" | [1-9] [0-9]{{0,18}}) ("." [0-9]{{1,24}})? ([eE] [-+]? [0-9]{{1,3}})?)"
      R"( | "true" | "false" | "null")"
      R"( | "[" ({} ("," {})*)? "]" | "{{" ({} ("," {})*)? "}}")",
      MarkedString(), kName, kName, pair, pair);
  CHECK(rules_.AddRule(kName, body) == kName);
  return std::string(kName);
}

// Properties in their order, those that are required all of them. Of what lies in objects and
// arrays a schema is not held to.
std::string CallRules::MarkedArguments(const Tool& tool) {
  const auto schema = Json::Parse(tool.parameters);
  const auto properties = schema ? schema->Find("properties") : std::nullopt;
  if (!properties) {
    const std::string pair = Format("({} {})", kMarkedKey, MarkedValue());
    return Format(R"("{{" ({} ("," {})*)? "}}")", pair, pair);
  }
  const std::set<std::string> required = RequiredOf(*schema);
  std::vector<std::pair<std::string, bool>> parts;  // a rule, and whether it is required
  for (const auto& [key, value] : properties->members()) {
    if (rules_.is_full()) break;
    if (!IsMarkedKey(key)) continue;  // no model can write it so that it is read
    parts.emplace_back(rules_.AddRule("parameter", MarkedParameter(key, value)),
                       required.contains(std::string(key)));
  }
  // What may follow: behind nothing, and behind another.
  std::string first = "\"\"";
  std::string rest = "\"\"";
  for (const auto& [part, is_required] : std::views::reverse(parts)) {
    first = is_required ? Format("{} {}", part, rest) : Format("{} {} | {}", part, rest, first);
    rest = is_required ? Format(R"("," {} {})", part, rest) : Format(R"(("," {})? {})", part, rest);
    first = rules_.AddRule("first", first);
    rest = rules_.AddRule("rest", rest);
  }
  return Format(R"("{{" {} "}}")", first);
}

std::string CallRules::MarkedParameter(std::string_view key, JsonView schema) {
  const std::string head = Quoted(Format("{}:", key));
  const std::string mark = Quoted(style_.calls.string_mark);
  if (IsTextSchema(schema)) {
    std::vector<std::string> choices = TextsOf(schema.Find("enum"));
    std::erase_if(choices, [this](const std::string& choice) {
      return choice.contains(style_.calls.string_mark);
    });
    if (choices.empty()) return Format("{} {}", head, MarkedString());
    for (std::string& choice : choices) choice = Quoted(choice);
    return Format("{} {} ({}) {}", head, mark, Joined(choices, " | "), mark);
  }
  const auto type = schema.Find("type");
  const std::string name = type ? type->text().value_or("") : "";
  if (name == "integer" || name == "number" || name == "boolean" || name == "null") {
    if (const auto rule = rules_.AddSchema(schema.Dump(), "value")) {
      return Format("{} {}", head, *rule);
    }
  }
  return Format("{} {}", head, MarkedValue());
}

std::string CallRules::Arguments(const Tool& tool) {
  if (!style_.calls.string_mark.empty()) return MarkedArguments(tool);
  const auto schema = Json::Parse(tool.parameters);
  const auto type = schema ? schema->Find("type") : std::nullopt;
  if (type && type->text() == "object") {
    const Result<std::string> rule = rules_.AddSchema(tool.parameters, "arguments");
    if (rule) return *rule;
  }
  return rules_.AddAnyObject();
}

// Before a value.
std::string CallRules::KeyText(std::string_view key) const {
  return Format("{}{}{}", style_.calls.key_begin, key, BehindKey());
}

std::string CallRules::BehindKey() const {
  const CallStyle& style = style_.calls;
  return Format("{}{}{}", style.key_end, style.behind_key, style.value_begin);
}

// Any text, up to the next argument.
std::string CallRules::AnyValue() {
  const std::string_view behind = style_.calls.behind_value;
  return Until(style_.calls.value_end) + (behind.empty() ? "" : " " + Quoted(behind));
}

std::string CallRules::FreeParameters() {
  const std::string_view quote = style_.calls.key_end.starts_with('"') ? "\\\"" : "";
  return Format("({} [^<>\\n{}]+ {} {})*", Quoted(style_.calls.key_begin), quote,
                Quoted(BehindKey()), AnyValue());
}

std::string CallRules::TaggedParameters(const Tool& tool) {
  const auto schema = Json::Parse(tool.parameters);
  const auto properties = schema ? schema->Find("properties") : std::nullopt;
  if (!properties) return FreeParameters();
  std::vector<std::string> parts;
  const std::set<std::string> required = RequiredOf(*schema);
  for (const auto& [key, value] : properties->members()) {
    if (rules_.is_full()) break;
    const std::string rule = rules_.AddRule("parameter", TaggedParameter(key, value));
    parts.push_back(required.contains(std::string(key)) ? rule : rule + "?");
  }
  return parts.empty() ? "\"\"" : Joined(parts, " ");
}

std::string CallRules::TaggedParameter(std::string_view key, JsonView schema) {
  const CallStyle& style = style_.calls;
  const std::string end =
      Quoted(Format("{}{}{}", style.before_value_end, style.value_end, style.behind_value));
  const std::string head = Quoted(KeyText(key));
  std::vector<std::string> choices = TextsOf(schema.Find("enum"));
  if (IsTextSchema(schema) && !choices.empty()) {
    for (std::string& choice : choices) choice = Quoted(choice);
    return Format("{} ({}) {}", head, Joined(choices, " | "), end);
  }
  if (!IsTextSchema(schema)) {
    const Result<std::string> rule = rules_.AddSchema(schema.Dump(), "value");
    if (rule) return Format("{} {} {}", head, *rule, end);
  }
  return Format("{} {}", head, AnyValue());
}

std::string CallRules::Until(std::string_view mark) {
  const auto known = until_.find(mark);
  if (known != until_.end()) return known->second;
  // One rule for each state of the search, from the last to the first; the names are known before
  // the rules because a dash and a number make them.
  std::string letters(mark);
  std::ranges::sort(letters);
  letters.erase(std::ranges::unique(letters).begin(), letters.end());
  std::string codes;
  for (const char c : letters) codes += CharacterCode(c);
  const std::string base = Format("until-{}", until_.size());
  const auto name = [&](size_t state) { return Format("{}-{}", base, state); };
  for (size_t state = 0; state < mark.size(); ++state) {
    std::string body = Format("[^{}] {}", codes, name(0));
    for (const char c : letters) {
      const size_t next = NextState(mark, state, c);
      body += Format(" | [{}]", CharacterCode(c));
      if (next < mark.size()) body += " " + name(next);
    }
    CHECK(rules_.AddRule(name(state), body) == name(state));
  }
  return until_.emplace(std::string(mark), name(0)).first->second;
}

}  // namespace moestro
