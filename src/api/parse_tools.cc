// SPDX-License-Identifier: MIT
#include <set>
#include <utility>

#include "api/parse_parts.h"
#include "base/format.h"
#include "base/printable.h"

namespace moestro {
namespace {

// 400 that names the type, unless it is "function".
ApiStatus CheckIsFunction(BodyFields& tool, std::string_view what) {
  TRY(const std::optional<std::string> type, tool.Text("type"));
  if (!type || *type == "function") return {};
  return BadRequest(tool.Name("type"),
                    Format("{} of type \"{}\" are not offered; those of type \"function\" are",
                           what, Printable(*type, 40)));
}

}  // namespace

ApiStatus AddTool(BodyFields& function, std::string_view schema_key, ChatInput& chat) {
  Tool tool;
  TRY(tool.name, function.NeededText("name"));
  TRY(std::optional<std::string> description, function.Text("description"));
  tool.description = std::move(description).value_or("");
  TRY(const auto schema, function.Object(schema_key));
  if (schema) tool.parameters = schema->Dump();
  chat.tools.push_back(std::move(tool));
  return {};
}

ApiStatus ReadTools(BodyFields& body, bool is_flat, ChatInput& chat) {
  TRY(const auto tools, body.Array("tools"));
  if (!tools) return {};
  for (size_t i = 0; i < tools->size(); ++i) {
    TRY(BodyFields tool, BodyFields::Of(*tools->At(i), body.Name("tools", i)));
    TRY_STATUS(CheckIsFunction(tool, "tools"));
    if (is_flat) {
      TRY_STATUS(AddTool(tool, "parameters", chat));
      continue;
    }
    TRY(std::optional<BodyFields> function, tool.Fields("function"));
    if (!function) {
      return BadRequest(
          tool.Name("function"),
          Format("\"{}\" is missing: the tool's name and parameters", tool.Name("function")));
    }
    TRY_STATUS(AddTool(*function, "parameters", chat));
  }
  return {};
}

ApiStatus ReadToolChoice(BodyFields& body, ChatInput& chat) {
  const auto choice = body.Find("tool_choice");
  if (!choice) return {};
  if (choice->kind() == JsonKind::kText) {
    const std::string word = *choice->text();
    if (word == "auto")
      chat.tool_use = ToolUse::kAuto;
    else if (word == "none")
      chat.tool_use = ToolUse::kNone;
    else if (word == "required")
      chat.tool_use = ToolUse::kRequired;
    else
      return WrongValue(body.Name("tool_choice"), "\"auto\", \"none\", \"required\" or a function",
                        *choice);
    return {};
  }
  if (choice->kind() != JsonKind::kObject) {
    return WrongValue(body.Name("tool_choice"), "\"auto\", \"none\", \"required\" or an object",
                      *choice);
  }
  TRY(BodyFields object, BodyFields::Of(*choice, body.Name("tool_choice")));
  TRY_STATUS(CheckIsFunction(object, "choices"));
  TRY(std::optional<BodyFields> function, object.Fields("function"));
  TRY(chat.named_tool, (function ? *function : object).NeededText("name"));
  chat.tool_use = ToolUse::kNamed;
  return {};
}

ApiStatus CheckTools(const ChatInput& chat) {
  std::set<std::string_view> names;
  for (const Tool& tool : chat.tools) {
    if (names.insert(tool.name).second) continue;
    return BadRequest("tools", Format("\"tools\" has two of the name \"{}\"; each needs its own",
                                      Printable(tool.name, 64)));
  }
  if (chat.tool_use == ToolUse::kNamed && !names.contains(chat.named_tool)) {
    return BadRequest("tool_choice",
                      Format("\"tool_choice\" names \"{}\", which is not in \"tools\"",
                             Printable(chat.named_tool, 64)));
  }
  if (chat.tool_use == ToolUse::kRequired && names.empty()) {
    return BadRequest("tool_choice",
                      "\"tool_choice\" asks for a call, but \"tools\" has none to call");
  }
  return {};
}

std::string ObjectText(std::string_view text) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) return "{}";
  constexpr size_t kMostValues = size_t{1} << 20;
  const auto parsed = Json::Parse(text, kMostValues);
  if (parsed && parsed->view().kind() == JsonKind::kObject) return std::string(text);
  return Json::Object().Set("input", text).Dump();
}

ApiResult<std::string> ReadArguments(BodyFields& call, std::string_view key) {
  const auto value = call.Find(key);
  if (!value) return "{}";
  if (value->kind() == JsonKind::kObject) return value->Dump();
  if (value->kind() == JsonKind::kText) return ObjectText(*value->text());
  return WrongValue(call.Name(key), "a string of JSON or an object", *value);
}

}  // namespace moestro
