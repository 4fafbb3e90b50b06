// SPDX-License-Identifier: MIT
#include "chat/call_text.h"

#include <algorithm>
#include <optional>

#include "base/format.h"
#include "base/json.h"

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

}  // namespace moestro
