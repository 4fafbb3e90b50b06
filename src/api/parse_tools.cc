// SPDX-License-Identifier: MIT
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "api/parse_parts.h"
#include "base/terminal.h"
#include "base/text.h"
#include "chat/call_scan.h"

namespace moestro {
namespace {

// 400 that names the type, unless the type is "function": a tool that the request demands cannot be
// left out.
ApiStatus CheckIsFunction(BodyFields& choice) {
  TRY(const std::optional<std::string> type, choice.Text("type"));
  if (!type || *type == "function") return {};
  return BadRequest(choice.Name("type"),
                    Format("choices of type \"{}\" are not offered; those of type \"function\" and "
                           "\"allowed_tools\" are",
                           Printable(*type, 40)));
}

// Chat's {"allowed_tools": {"mode", "tools"}}, or responses', where the two stand in the choice.
ApiStatus ReadAllowedTools(BodyFields& choice, ApiRequest& request) {
  ChatInput& chat = request.chat;
  TRY(std::optional<BodyFields> inner, choice.Fields("allowed_tools"));
  BodyFields& fields = inner ? *inner : choice;
  TRY(const std::optional<std::string> mode, fields.Text("mode"));
  if (mode && *mode != "auto" && *mode != "required") {
    return WrongValue(fields.Name("mode"), "\"auto\" or \"required\"", *fields.Find("mode"));
  }
  chat.tool_use = mode == "required" ? ToolUse::kRequired : ToolUse::kAuto;
  TRY(const JsonView tools, fields.NeededArray("tools"));
  if (tools.size() == 0) {
    return BadRequest(fields.Name("tools"),
                      Format("\"{}\" must name a tool; \"tool_choice\": \"none\" allows none",
                             fields.Name("tools")));
  }
  for (size_t i = 0; i < tools.size(); ++i) {
    TRY(BodyFields tool, BodyFields::Of(*tools.At(i), fields.Name("tools", i)));
    TRY_STATUS(CheckIsFunction(tool));
    TRY(std::optional<BodyFields> function, tool.Fields("function"));
    TRY(std::string name, ReadToolName(function ? *function : tool, request));
    chat.allowed_tools.push_back(std::move(name));
  }
  return {};
}

// The word of a tool choice that names no tool.
std::optional<ToolUse> ToolUseOf(std::string_view word) {
  if (word == "auto") return ToolUse::kAuto;
  if (word == "none") return ToolUse::kNone;
  if (word == "required") return ToolUse::kRequired;
  return std::nullopt;
}

// A function of a namespace in one word, as other programs spell it.
std::string JoinedName(const std::string& space, const std::string& name) {
  return space + (space.ends_with("__") ? "" : "__") + name;
}

// Reads the tools of namespaces. The model's names for these tools are chosen in Finish(), when all
// names have been read.
class NamespaceReader {
 public:
  explicit NamespaceReader(ApiRequest& request) : request_(request) {}

  ApiStatus Read(BodyFields& group) {
    TRY(const std::string space, group.NeededText("name"));
    TRY(const std::optional<std::string> description, group.Text("description"));
    TRY(const JsonView tools, group.NeededArray("tools"));
    for (size_t i = 0; i < tools.size(); ++i) {
      TRY(BodyFields tool, BodyFields::Of(*tools.At(i), group.Name("tools", i)));
      TRY(const std::optional<std::string> type, tool.Text("type"));
      if (type && *type != "function") {
        Warn(request_, tool.where(), *type, "only functions can be called");
        continue;
      }
      TRY_STATUS(AddTool(tool, "parameters", request_.chat));
      Tool& added = request_.chat.tools.back();
      if (added.description.empty()) added.description = description.value_or("");
      members_.push_back({.space = space, .tool = request_.chat.tools.size() - 1});
    }
    return {};
  }

  // Chooses the model's names: a name stays as it is unless another tool has it, too.
  ApiStatus Finish() {
    std::map<std::string, size_t> uses;
    for (const Tool& tool : request_.chat.tools) ++uses[tool.name];
    std::set<std::string> taken;
    for (const auto& [name, n] : uses) taken.insert(name);
    for (const Member& member : members_) {
      Tool& tool = request_.chat.tools[member.tool];
      std::string told = tool.name;
      if (uses[tool.name] > 1) told = NewName(member.space, tool.name, taken);
      if (!request_.namespaced.try_emplace({member.space, tool.name}, told).second) {
        return BadRequest("tools", Format("\"tools\" has two of the name \"{}\" in the namespace "
                                          "\"{}\"; each needs its own",
                                          Printable(tool.name, 64), Printable(member.space, 64)));
      }
      tool.name = std::move(told);
    }
    return {};
  }

 private:
  struct Member {
    std::string space;
    size_t tool;
  };

  static std::string NewName(const std::string& space, const std::string& name,
                             std::set<std::string>& taken) {
    std::string told = JoinedName(space, name);
    for (int i = 2; !IsToolName(told) || !taken.insert(told).second; ++i) {
      constexpr size_t kRoomForNumber = 240;
      told = Format("{}_{}", std::string_view(name).substr(0, kRoomForNumber), i);
    }
    return told;
  }

  ApiRequest& request_;
  std::vector<Member> members_;
};

}  // namespace

void Warn(ApiRequest& request, const std::string& where, std::string_view type,
          std::string_view offered) {
  constexpr size_t kMostWarnings = 16;
  if (request.warnings.size() >= kMostWarnings) return;
  request.warnings.push_back(Format("{} of type \"{}\" is left out; {}", Printable(where, 64),
                                    Printable(type, 40), offered));
}

ApiStatus AddTool(BodyFields& function, std::string_view schema_key, ChatInput& chat) {
  Tool tool;
  TRY(tool.name, function.NeededText("name"));
  if (!IsToolName(tool.name)) {
    return BadRequest(
        function.Name("name"),
        Format("\"{}\" is '{}'; a tool's name has 1 to 256 bytes, no blanks around it "
               "and none of < > {{ }} \" and control characters",
               function.Name("name"), Printable(tool.name, 64)));
  }
  TRY(std::optional<std::string> description, function.Text("description"));
  tool.description = std::move(description).value_or("");
  TRY(const auto schema, function.Object(schema_key));
  if (schema) tool.parameters = schema->Dump();
  TRY(const std::optional<bool> is_strict, function.Boolean("strict"));
  tool.is_strict = is_strict.value_or(false);
  chat.tools.push_back(std::move(tool));
  return {};
}

ApiStatus ReadTools(BodyFields& body, bool is_flat, ApiRequest& request) {
  ChatInput& chat = request.chat;
  TRY(const auto tools, body.Array("tools"));
  if (!tools) return {};
  NamespaceReader namespaces(request);
  for (size_t i = 0; i < tools->size(); ++i) {
    TRY(BodyFields tool, BodyFields::Of(*tools->At(i), body.Name("tools", i)));
    TRY(const std::optional<std::string> type, tool.Text("type"));
    if (is_flat && type == "namespace") {
      TRY_STATUS(namespaces.Read(tool));
      continue;
    }
    if (type && *type != "function") {
      Warn(request, tool.where(), *type, "only functions can be called");
      continue;
    }
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
  return namespaces.Finish();
}

ApiResult<std::string> ReadToolName(BodyFields& fields, const ApiRequest& request) {
  TRY(std::string name, fields.NeededText("name"));
  TRY(std::optional<std::string> space, fields.Text("namespace"));
  if (!space || space->empty()) return name;
  const auto known = request.namespaced.find({*space, name});
  return known == request.namespaced.end() ? name : known->second;
}

ApiStatus ReadToolChoice(BodyFields& body, ApiRequest& request) {
  ChatInput& chat = request.chat;
  const auto choice = body.Find("tool_choice");
  if (!choice) return {};
  if (choice->kind() == JsonKind::kText) {
    const auto use = ToolUseOf(*choice->text());
    if (!use) {
      return WrongValue(body.Name("tool_choice"), "\"auto\", \"none\", \"required\" or a function",
                        *choice);
    }
    chat.tool_use = *use;
    return {};
  }
  if (choice->kind() != JsonKind::kObject) {
    return WrongValue(body.Name("tool_choice"), "\"auto\", \"none\", \"required\" or an object",
                      *choice);
  }
  TRY(BodyFields object, BodyFields::Of(*choice, body.Name("tool_choice")));
  TRY(const std::optional<std::string> type, object.Text("type"));
  if (type == "allowed_tools") return ReadAllowedTools(object, request);
  if (const auto use = ToolUseOf(type.value_or(""))) {
    chat.tool_use = *use;
    return {};
  }
  TRY_STATUS(CheckIsFunction(object));
  TRY(std::optional<BodyFields> function, object.Fields("function"));
  TRY(chat.named_tool, ReadToolName(function ? *function : object, request));
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
  std::vector<std::string_view> chosen(chat.allowed_tools.begin(), chat.allowed_tools.end());
  if (chat.tool_use == ToolUse::kNamed) chosen.emplace_back(chat.named_tool);
  for (const std::string_view name : chosen) {
    if (names.contains(name)) continue;
    return BadRequest(
        "tool_choice",
        Format("\"tool_choice\" names \"{}\", which is not in \"tools\"", Printable(name, 64)));
  }
  if (chat.tool_use == ToolUse::kRequired && names.empty()) {
    return BadRequest("tool_choice",
                      "\"tool_choice\" asks for a call, but \"tools\" has none to call");
  }
  return {};
}

std::string ObjectText(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return "{}";
  if (text[first] == '{' && Json::IsJson(text)) return std::string(text);
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
