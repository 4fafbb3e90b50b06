// SPDX-License-Identifier: MIT
#include <cstdint>
#include <utility>

#include "api/parse_parts.h"
#include "base/terminal.h"
#include "base/text.h"

namespace moestro {
namespace {

bool IsText(std::string_view type) {
  return type == "text" || type == "input_text" || type == "output_text" ||
         type == "reasoning_text" || type == "summary_text" || type == "refusal";
}

ApiResult<std::string> ReadTextPart(BodyFields& part, const std::string& type) {
  if (IsText(type)) {
    TRY(std::optional<std::string> text, part.Text(type == "refusal" ? "refusal" : "text"));
    return std::move(text).value_or("");
  }
  return BadRequest(part.Name("type"),
                    Format("content of type \"{}\" is not offered: the model reads text only",
                           Printable(type, 40)));
}

// A string, or the results of `read` for each part, joined by line ends.
template <class Read>
ApiResult<std::string> ReadParts(BodyFields& turn, std::string_view key, const Read& read) {
  const auto content = turn.Find(key);
  if (!content) return "";
  if (auto text = content->text()) return *std::move(text);
  if (content->kind() != JsonKind::kArray)
    return WrongValue(turn.Name(key), "a string or an array of text parts", *content);
  std::string joined;
  for (size_t i = 0; i < content->size(); ++i) {
    TRY(BodyFields part, BodyFields::Of(*content->At(i), turn.Name(key, i)));
    TRY(const std::string type, part.NeededText("type"));
    TRY(const std::string text, read(part, type));
    if (i > 0) joined += '\n';
    joined += text;
  }
  return joined;
}

ApiResult<std::string> ReadEarlierPart(BodyFields& part, const std::string& type,
                                       ApiRequest& request) {
  if (IsText(type)) return ReadTextPart(part, type);
  if (type == "tool_reference") {
    TRY(const std::string name, part.NeededText("tool_name"));
    return Format("The tool {} can be called.", name);
  }
  if (IsDocument(type)) {
    TRY(std::optional<std::string> text, ReadDocument(part));
    if (text) return *std::move(text);
  }
  return LeftOut(part.where(), type, request);
}

bool HasResultsAlone(JsonView turn) {
  const auto content = turn.Find("content");
  if (!content || content->kind() != JsonKind::kArray || content->size() == 0) return false;
  for (size_t i = 0; i < content->size(); ++i) {
    const auto type = content->At(i)->Find("type");
    if (!type || type->text() != "tool_result") return false;
  }
  return true;
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
  return ReadParts(turn, key, ReadTextPart);
}

ApiResult<std::string> ReadEarlierContent(BodyFields& turn, std::string_view key,
                                          ApiRequest& request) {
  return ReadParts(turn, key, [&](BodyFields& part, const std::string& type) {
    return ReadEarlierPart(part, type, request);
  });
}

std::string LeftOut(const std::string& where, std::string_view type, ApiRequest& request) {
  Warn(request, where, type, "the model reads text only");
  return Format("[Something of type \"{}\" was left out here: it is no text.]",
                Printable(type, 40));
}

size_t LastOfUser(JsonView turns) {
  for (size_t i = turns.size(); i-- > 0;) {
    const JsonView turn = *turns.At(i);
    const auto role = turn.Find("role");
    if (role && role->text() == "user" && !HasResultsAlone(turn)) return i;
  }
  return SIZE_MAX;
}

bool IsDocument(std::string_view type) { return type == "document" || type == "search_result"; }

ApiResult<std::optional<std::string>> ReadDocument(BodyFields& block) {
  std::string text;
  for (const char* key : {"title", "context"}) {
    TRY(const std::optional<std::string> line, block.Text(key));
    if (line && !line->empty()) text += *line + "\n";
  }
  const auto source = block.Find("source");
  if (!source || source->kind() == JsonKind::kText) {  // a search result's source is an address
    if (source) text += *source->text() + "\n";
    TRY(const std::string content, ReadContent(block, "content"));
    return text + content;
  }
  TRY(BodyFields fields, BodyFields::Of(*source, block.Name("source")));
  TRY(const std::string type, fields.NeededText("type"));
  if (type == "text") {
    TRY(const std::string data, fields.NeededText("data"));
    return text + data;
  }
  if (type != "content") return std::nullopt;
  TRY(const std::string content, ReadContent(fields, "content"));
  return text + content;
}

}  // namespace moestro
