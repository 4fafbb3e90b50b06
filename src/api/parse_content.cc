// SPDX-License-Identifier: MIT
#include <utility>

#include "api/parse_parts.h"
#include "base/format.h"
#include "base/printable.h"

namespace moestro {
namespace {

ApiResult<std::string> ReadTextPart(JsonView value, std::string where) {
  TRY(BodyFields part, BodyFields::Of(value, std::move(where)));
  TRY(const std::string type, part.NeededText("type"));
  if (type == "text" || type == "input_text" || type == "output_text" || type == "reasoning_text" ||
      type == "summary_text") {
    TRY(std::optional<std::string> text, part.Text("text"));
    return std::move(text).value_or("");
  }
  if (type == "refusal") {
    TRY(std::optional<std::string> text, part.Text("refusal"));
    return std::move(text).value_or("");
  }
  return BadRequest(part.Name("type"),
                    Format("content of type \"{}\" is not offered: the model reads text only",
                           Printable(type, 40)));
}

}  // namespace

ChatTurn NewTurn(std::string role, std::string content) {
  ChatTurn turn;
  turn.role = std::move(role);
  turn.content = std::move(content);
  return turn;
}

bool EndsInText(const ChatInput& chat) {
  if (chat.turns.empty()) return false;
  const ChatTurn& last = chat.turns.back();
  const bool has_text = !last.content.empty() || !last.reasoning.empty();
  return last.role == "assistant" && last.calls.empty() && has_text;
}

ApiResult<std::string> ReadContent(BodyFields& turn, std::string_view key) {
  const auto content = turn.Find(key);
  if (!content) return "";
  if (auto text = content->text()) return *std::move(text);
  if (content->kind() != JsonKind::kArray)
    return WrongValue(turn.Name(key), "a string or an array of text parts", *content);
  std::string joined;
  for (size_t i = 0; i < content->size(); ++i) {
    TRY(const std::string text, ReadTextPart(*content->At(i), turn.Name(key, i)));
    if (i > 0) joined += '\n';
    joined += text;
  }
  return joined;
}

}  // namespace moestro
