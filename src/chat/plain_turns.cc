// SPDX-License-Identifier: MIT
#include "chat/plain_turns.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "base/text.h"
#include "chat/call_ids.h"

namespace moestro {
namespace {

std::string ArgumentsOf(const ToolCall& call) {
  return call.arguments.empty() ? "{}" : call.arguments;
}

std::string AsPython(JsonView value) {
  if (value.kind() == JsonKind::kNull) return "None";
  if (value.kind() == JsonKind::kBoolean) return value.boolean() == true ? "True" : "False";
  const bool is_list = value.kind() == JsonKind::kArray;
  if (!is_list && value.kind() != JsonKind::kObject) return value.Dump();
  std::string text = is_list ? "[" : "{";
  const auto add = [&text](const std::string& part) {
    if (text.size() > 1) text += ", ";
    text += part;
  };
  for (size_t i = 0; is_list && i < value.size(); ++i) add(AsPython(*value.At(i)));
  for (const auto& [key, member] : value.members()) {
    add(Format("{}: {}", Json(key).Dump(), AsPython(member)));
  }
  return text + (is_list ? "]" : "}");
}

std::string AsMarked(JsonView value, std::string_view mark) {
  const bool is_list = value.kind() == JsonKind::kArray;
  if (const auto text = value.text()) return Format("{}{}{}", mark, *text, mark);
  if (!is_list && value.kind() != JsonKind::kObject) return value.Dump();
  std::string text = is_list ? "[" : "{";
  const auto add = [&text](const std::string& part) {
    if (text.size() > 1) text += ",";
    text += part;
  };
  for (size_t i = 0; is_list && i < value.size(); ++i) add(AsMarked(*value.At(i), mark));
  for (const auto& [key, member] : value.members()) {
    add(Format("{}:{}", key, AsMarked(member, mark)));
  }
  return text + (is_list ? "]" : "}");
}

std::string AsNested(JsonView value, const CallStyle& style) {
  const bool is_list = value.kind() == JsonKind::kArray;
  if (!is_list && value.kind() != JsonKind::kObject) return value.text().value_or(value.Dump());
  std::string text;
  const auto add = [&](std::string_view key, JsonView part) {
    text += Format("{}{}{}{}", style.key_begin, key, style.key_end, AsNested(part, style));
    text += Format("{}{}{}", style.value_end, key, style.key_end);
  };
  for (size_t i = 0; is_list && i < value.size(); ++i) add("item", *value.At(i));
  for (const auto& [key, member] : value.members()) add(key, member);
  return text;
}

std::string AsTags(JsonView arguments, const CallStyle& style) {
  std::string text;
  for (const auto& [key, member] : arguments.members()) {
    const auto words = member.text();
    text += Format("{}{}{}", style.key_begin, key, style.key_end);
    if (!style.tag_end.empty()) {
      text += words ? style.text_attribute : style.plain_json_attribute;
      text += style.tag_end;
    }
    text +=
        Format("{}{}{}{}{}{}", style.behind_key, style.value_begin, words ? *words : member.Dump(),
               style.before_value_end, style.value_end, style.behind_value);
  }
  return text;
}

// nullopt: the arguments are no object, which only JSON's styles can show.
std::optional<std::string> Spell(const CallStyle& style, const ToolCall& call) {
  const bool is_json = style.shape == CallShape::kEnvelope ||
                       (style.shape == CallShape::kObject && style.string_mark.empty());
  const AroundArguments around = TextAround(style, call.name);
  if (is_json) return around.before + ArgumentsOf(call) + around.behind;
  const auto arguments = Json::Parse(ArgumentsOf(call));
  if (!arguments || arguments->view().kind() != JsonKind::kObject) return std::nullopt;
  const JsonView view = arguments->view();
  std::string text;
  switch (style.shape) {
    case CallShape::kTags:
      text = AsTags(view, style);
      break;
    case CallShape::kNested:
      text = AsNested(view, style);
      break;
    case CallShape::kPython:
      for (const auto& [key, member] : view.members()) {
        text += Format("{}{}={}", text.empty() ? "" : ", ", key, AsPython(member));
      }
      break;
    default:
      text = AsMarked(view, style.string_mark);
  }
  return around.before + text + around.behind;
}

}  // namespace

std::string CallsText(const CallStyle& style, std::span<const ToolCall> calls) {
  const bool has_text = style.shape != CallShape::kNone && style.shape != CallShape::kChannels &&
                        !style.is_bare() && !style.is_fenced;
  if (!has_text) return CallsText(PlainCallStyle(), calls);
  const std::string_view line = style.has_lines ? "\n" : "";
  const std::string begin = Format("{}{}", style.begin, line);
  const std::string end = Format("{}{}", line, style.end);
  std::string all;
  for (const ToolCall& call : calls) {
    const auto text = Spell(style, call);
    if (!text) return CallsText(PlainCallStyle(), calls);
    if (style.is_around_all) {
      if (!all.empty()) all += style.separator.empty() ? std::string(line) : ", ";
      all += *text;
    } else {
      if (!all.empty()) all += "\n";
      all += begin + *text + end;
    }
  }
  if (!style.is_around_all) return all;
  return Format("{}{}{}{}{}", begin, style.list_begin, all, style.list_end, end);
}

namespace {

// A call as an example for the model to imitate.
std::string CallExample(const CallStyle& style) {
  const AroundArguments around = TextAround(style, "the tool's name");
  const std::string call = around.before + "{}" + around.behind;
  if (style.has_lines) return Format("{}\n{}\n{}", style.begin, call, style.end);
  return Format("{}{}{}{}{}", style.begin, style.list_begin, call, style.list_end, style.end);
}

// Describes the tools, with JSON texts as they were sent.
std::string DescribeTools(const std::vector<Tool>& tools, const AnswerStyle& style) {
  std::string text = "You can call these tools, one a line:\n";
  for (const Tool& tool : tools) {
    text += Format(R"({{"name": {}, "description": {}, "parameters": {}}})", Json(tool.name).Dump(),
                   Json(tool.description).Dump(), tool.parameters.empty() ? "{}" : tool.parameters);
    text += "\n";
  }
  text += "To call one, answer like this, with its name and its arguments as a JSON object:\n";
  return text + CallExample(HasExample(style.calls) ? style.calls : PlainCallStyle());
}

void SpellCalls(ChatTurn& turn, const AnswerStyle& style) {
  const std::vector<ToolCall> calls = std::exchange(turn.calls, {});
  if (calls.empty()) return;
  if (!turn.content.empty()) turn.content += "\n";
  turn.content += CallsText(style.calls, calls);
}

void SpellReasoning(ChatTurn& turn, const AnswerStyle& style) {
  if (turn.reasoning.empty() || style.reasoning_end.empty()) return;
  turn.content = Format("{}\n{}\n{}\n\n{}", style.reasoning_begin, turn.reasoning,
                        style.reasoning_end, turn.content);
  turn.reasoning.clear();
}

void AddBefore(std::string& text, std::string_view before) {
  text = text.empty() ? std::string(before) : Format("{}\n\n{}", before, text);
}

ChatTurn Turn(std::string_view role) {
  ChatTurn turn;
  turn.role = role;
  return turn;
}

// Several tools' answers in a row are one turn of the user.
void AddResult(std::vector<ChatTurn>& turns, const ChatTurn& result, bool is_first) {
  if (is_first) turns.push_back(Turn("user"));
  std::string& content = turns.back().content;
  if (!content.empty()) content += "\n";
  content += Format("<tool_response>\n{}\n</tool_response>", result.content);
}

void DescribeIn(std::vector<ChatTurn>& turns, const std::vector<Tool>& tools,
                const AnswerStyle& style) {
  if (turns.empty() || turns[0].role != "system") turns.insert(turns.begin(), Turn("system"));
  std::string& content = turns[0].content;
  if (!content.empty()) content += "\n\n";
  content += DescribeTools(tools, style);
}

void Join(std::string& text, std::string_view more) {
  if (!text.empty() && !more.empty()) text += "\n\n";
  text += more;
}

// Moves the system's turns from `first` on before the next user's words, for templates that would
// leave them out.
void MergeSystem(std::vector<ChatTurn>& turns, size_t first) {
  std::vector<ChatTurn> merged;
  std::string pending;
  for (size_t i = 0; i < turns.size(); ++i) {
    ChatTurn& turn = turns[i];
    if (i >= first && turn.role == "system") {
      Join(pending, turn.content);
      continue;
    }
    if (turn.role == "user" && !pending.empty()) {
      AddBefore(turn.content, std::exchange(pending, {}));
    }
    merged.push_back(std::move(turn));
  }
  if (!pending.empty()) {
    merged.push_back(Turn("user"));
    merged.back().content = std::move(pending);
  }
  turns = std::move(merged);
}

// The results of several calls of a turn, each taken once. A client may send hundreds of thousands,
// so that none is looked at for every call.
class CallResults {
 public:
  explicit CallResults(std::vector<ChatTurn> results)
      : results_(std::move(results)), is_taken_(results_.size()) {
    for (size_t i = 0; i < results_.size(); ++i) by_id_[results_[i].call_id].push_back(i);
  }
  // Moves the call's results to `turns`; for a call without an id, the first result that is left.
  void TakeOf(const ToolCall& call, std::vector<ChatTurn>& turns) {
    if (call.id.empty()) {
      while (first_ < results_.size() && is_taken_[first_]) ++first_;
      if (first_ < results_.size()) Take(first_, turns);
      return;
    }
    const auto found = by_id_.find(call.id);
    if (found == by_id_.end()) return;
    for (const size_t i : found->second) Take(i, turns);
    by_id_.erase(found);
  }
  void TakeRest(std::vector<ChatTurn>& turns) {
    for (size_t i = 0; i < results_.size(); ++i) Take(i, turns);
  }

 private:
  void Take(size_t i, std::vector<ChatTurn>& turns) {
    if (is_taken_[i]) return;
    is_taken_[i] = true;
    turns.push_back(std::move(results_[i]));
  }

  std::vector<ChatTurn> results_;
  std::vector<bool> is_taken_;
  std::map<std::string, std::vector<size_t>> by_id_;
  size_t first_ = 0;  // all results before this one are taken
};

// Makes a turn of each call with its results, for templates that write one call of a turn.
std::vector<ChatTurn> WithCallsApart(const std::vector<ChatTurn>& turns) {
  std::vector<ChatTurn> apart;
  for (size_t i = 0; i < turns.size(); ++i) {
    apart.push_back(turns[i]);
    if (turns[i].calls.size() < 2) continue;
    std::vector<ChatTurn> results;
    while (i + 1 < turns.size() && turns[i + 1].role == "tool") results.push_back(turns[++i]);
    CallResults of_calls(std::move(results));
    const std::vector<ToolCall> calls = std::exchange(apart.back().calls, {});
    for (size_t c = 0; c < calls.size(); ++c) {
      if (c > 0) apart.push_back(Turn("assistant"));
      apart.back().calls.push_back(calls[c]);
      of_calls.TakeOf(calls[c], apart);
    }
    of_calls.TakeRest(apart);  // results of unknown calls
  }
  return apart;
}

size_t LeadingSystems(const std::vector<ChatTurn>& turns) {
  const auto is_other = [](const ChatTurn& turn) { return turn.role != "system"; };
  return static_cast<size_t>(std::ranges::find_if(turns, is_other) - turns.begin());
}

// Joins neighbours of this role into one turn, for templates that refuse such neighbours or leave
// one out. Turns with calls stay apart.
void JoinRows(std::vector<ChatTurn>& turns, std::string_view role) {
  std::vector<ChatTurn> joined;
  for (ChatTurn& turn : turns) {
    const bool joins = !joined.empty() && turn.role == role && joined.back().role == role &&
                       joined.back().calls.empty() && turn.calls.empty();
    if (!joins) {
      joined.push_back(std::move(turn));
      continue;
    }
    Join(joined.back().content, turn.content);
    Join(joined.back().reasoning, turn.reasoning);
  }
  turns = std::move(joined);
}

// Leaves the turns as they were sent, but for those that the template has no place for.
void FitRows(std::vector<ChatTurn>& turns, const TemplateTraits& traits) {
  if (!traits.knows_system) {
    MergeSystem(turns, 0);
  } else {
    if (!traits.knows_systems_in_a_row) JoinRows(turns, "system");
    if (!traits.knows_late_system) MergeSystem(turns, LeadingSystems(turns));
  }
  if (!traits.knows_users_in_a_row) JoinRows(turns, "user");
  if (!traits.knows_assistants_in_a_row) JoinRows(turns, "assistant");
}

}  // namespace

bool HasExample(const CallStyle& style) {
  return style.is_around_all && !style.is_bare() && style.shape != CallShape::kTags;
}

std::vector<ChatTurn> PlainTurns(const ChatInput& input, const TemplateTraits& traits,
                                 const AnswerStyle& style) {
  std::vector<ChatTurn> turns;
  bool was_result = false;
  const bool splits = traits.knows_calls && !traits.knows_calls_in_a_row;
  const std::vector<ChatTurn> apart =
      splits ? WithCallsApart(input.turns) : std::vector<ChatTurn>();
  for (ChatTurn turn : splits ? apart : input.turns) {
    const bool is_result = turn.role == "tool" && !traits.knows_results;
    if (turn.role == "developer" && !traits.knows_developer) turn.role = "system";
    if (!traits.knows_calls) SpellCalls(turn, style);
    const bool says_calls_alone = traits.forms.has_null_content && !turn.calls.empty();
    if (traits.drops_thoughts) turn.reasoning.clear();
    if (!traits.knows_reasoning && !says_calls_alone) SpellReasoning(turn, style);
    if (says_calls_alone && !turn.content.empty()) {
      turns.push_back(Turn(turn.role));
      turns.back().content = std::exchange(turn.content, {});
    }
    // Templates with this key take an assistant's words before a call as its thoughts, and refuse
    // both.
    if (traits.forms.thoughts_key == ThoughtsKey::kThinking && !turn.calls.empty() &&
        !turn.reasoning.empty()) {
      if (!turn.content.empty()) turn.reasoning += "\n\n" + std::exchange(turn.content, {});
    }
    if (is_result) {
      AddResult(turns, turn, !was_result);
    } else {
      turns.push_back(std::move(turn));
    }
    was_result = is_result;
  }
  if (!input.tools.empty() && !traits.knows_tools) DescribeIn(turns, input.tools, style);
  FitRows(turns, traits);
  if (traits.wants_short_ids) ShortenIds(turns);
  const bool loses_names = traits.knows_calls && !traits.says_names_of_calls;
  if (loses_names && !style.calls.numbered_begin.empty())
    NumberIds(turns, style.calls.numbered_begin);
  return turns;
}

std::string RenderChatMl(const std::vector<ChatTurn>& turns, bool add_assistant) {
  std::string text;
  for (const ChatTurn& turn : turns) {
    text += Format("<|im_start|>{}\n{}<|im_end|>\n", turn.role, turn.content);
  }
  if (add_assistant) text += "<|im_start|>assistant\n";
  return text;
}

std::string RenderLines(const std::vector<ChatTurn>& turns, bool add_assistant) {
  std::string text;
  for (const ChatTurn& turn : turns) text += Format("{}: {}\n", turn.role, turn.content);
  if (add_assistant) text += "assistant:";
  return text;
}

}  // namespace moestro
