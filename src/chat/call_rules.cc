// SPDX-License-Identifier: MIT
// Calls, and any text up to a mark. argument_rules.cc has the arguments of calls.
#include "chat/call_rules.h"

#include <algorithm>

#include "base/result.h"
#include "base/text.h"
#include "chat/call_scan.h"

namespace moestro {
namespace {

std::string Quoted(std::string_view text) { return GrammarRules::Literal(text); }

// The characters of a text of UTF-8.
std::vector<std::string_view> CharactersOf(std::string_view text) {
  std::vector<std::string_view> characters;
  while (!text.empty()) {
    const size_t length = ReadUtf8(text).length;
    characters.push_back(text.substr(0, length));
    text.remove_prefix(length);
  }
  return characters;
}

// The state of a search for `mark` after `matched` of its characters and then `c`.
size_t NextState(std::span<const std::string_view> mark, size_t matched, std::string_view c) {
  std::vector<std::string_view> seen(mark.begin(), mark.begin() + static_cast<ptrdiff_t>(matched));
  seen.push_back(c);
  for (size_t n = std::min(seen.size(), mark.size()); n > 0; --n) {
    if (std::ranges::equal(std::span(seen).last(n), mark.first(n))) return n;
  }
  return 0;
}

// A character for a class of GBNF.
std::string CharacterCode(std::string_view character) {
  if (character.size() > 1) return std::string(character);
  return Format("\\x{:02X}", static_cast<unsigned char>(character.front()));
}

}  // namespace

std::string CallRules::Add(std::span<const Tool> tools, bool many) {
  CHECK(!tools.empty());
  std::vector<std::string> choices;
  for (const Tool& tool : tools) {
    if (rules_.is_full() || !limit_.status()) break;
    CheckStrict(tool);
    rules_.SetOwner(tool.name);
    choices.push_back(rules_.AddRule("call", One(tool)));
    rules_.SetOwner({});
  }
  const std::string one = rules_.AddRule("calls-one", Joined(choices, " | "));
  const CallStyle& style = style_.calls;
  if (style.shape == CallShape::kChannels) return one;
  const std::string row = many ? Format("{} ({} {})*", one, style.between, one) : one;
  if (!style.is_around_all) return rules_.AddRule("calls", row);
  const std::string_view line = style.has_lines ? "\n" : "";
  const std::string blank = Format(" {} ", style.list_blank);
  std::string begin = Quoted(Format("{}{}", style.begin, line));
  if (style.may_lack_begin) begin += "?";
  if (!style.list_begin.empty()) begin += " \" \"? " + Quoted(style.list_begin) + blank;
  std::string end;
  if (!style.list_end.empty()) end += blank + Quoted(style.list_end);
  if (!style.end.empty()) end += " " + Quoted(Format("{}{}", line, style.end));
  return rules_.AddRule("calls", Format("{} {}{}", begin, row, end));
}

void CallRules::CheckStrict(const Tool& tool) {
  if (!tool.is_strict || tool.parameters.empty() || !refusal_) return;
  GrammarRules alone(limit_, GrammarRules::Unsaid::kRefused);
  const auto rule = alone.AddObjectSchema(tool.parameters, "arguments");
  if (rule) return;
  refusal_ = Fail(rule.error().code, "tool {} is strict, but its schema cannot be held: {}",
                  tool.name, rule.error().message);
}

std::vector<std::string> CallRules::Triggers(std::span<const Tool> tools) const {
  if (style_.calls.shape == CallShape::kChannels) return ChannelCallBegins();
  std::vector<std::string> triggers{std::string(style_.calls.begin)};
  if (style_.calls.is_bare()) {
    for (const Tool& tool : tools) triggers.push_back(BareBegin(tool.name));
  }
  return triggers;
}

// The text before a call's arguments, without `begin`.
std::string CallRules::Head(std::string_view name) const {
  const CallStyle& style = style_.calls;
  if (style.shape == CallShape::kEnvelope && !style.id_key.empty()) {
    return Format("{} [0-9]{{1,3}} {}", Quoted(Format("{{\"{}\": \"", style.id_key)),
                  Quoted(Format("\", \"{}\": {}, \"{}\": ", style.name_key, Json(name).Dump(),
                                style.arguments_key)));
  }
  if (!style.numbered_begin.empty()) {
    return Format("{} [0-9]{{1,4}} {}",
                  Quoted(Format("{}{}{}:", style.call_begin, style.numbered_begin, name)),
                  Quoted(style.name_end));
  }
  if (!style.id_end.empty()) {
    return Format("{} [0-9a-zA-Z_-]{{1,64}} {}", Quoted(style.call_begin),
                  Quoted(Format("{}{}{}", style.id_end, name, style.name_end)));
  }
  if (!style.name_attribute.empty()) {
    return Format("{} {} {}", Quoted(Format("{}{}{}", style.call_begin, name, style.name_end)),
                  style.name_attribute, Quoted(Format("{}{}", style.tag_end, style.behind_name)));
  }
  const std::string before = TextAround(style, name).before;
  return before.empty() ? "" : Quoted(before);
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
  std::vector<std::string> parts;
  const std::string_view line = style.has_lines ? "\n" : "";
  if (!style.is_around_all) parts.push_back(Quoted(Format("{}{}", style.begin, line)));
  parts.push_back(Head(tool.name));
  parts.push_back(Arguments(tool));
  std::string behind = TextAround(style, tool.name).behind;
  if (!style.is_around_all) behind += Format("{}{}", line, style.end);
  parts.push_back(behind.empty() ? "" : Quoted(behind));
  std::erase(parts, "");
  return Joined(parts, " ");
}

std::string CallRules::Until(std::string_view mark) {
  const auto known = until_.find(mark);
  if (known != until_.end()) return known->second;
  // One rule for each state of the search, from the last to the first; the names are known before
  // the rules because a dash and a number make them.
  const std::vector<std::string_view> characters = CharactersOf(mark);
  std::vector<std::string_view> letters = characters;
  std::ranges::sort(letters);
  letters.erase(std::ranges::unique(letters).begin(), letters.end());
  std::string codes;
  for (const std::string_view c : letters) codes += CharacterCode(c);
  const std::string base = Format("until-{}", until_.size());
  const auto name = [&](size_t state) { return Format("{}-{}", base, state); };
  for (size_t state = 0; state < characters.size(); ++state) {
    std::string body = Format("[^{}] {}", codes, name(0));
    for (const std::string_view c : letters) {
      const size_t next = NextState(characters, state, c);
      body += Format(" | [{}]", CharacterCode(c));
      if (next < characters.size()) body += " " + name(next);
    }
    CHECK(rules_.AddRule(name(state), body) == name(state));
  }
  return until_.emplace(std::string(mark), name(0)).first->second;
}

}  // namespace moestro
