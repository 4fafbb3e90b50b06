// SPDX-License-Identifier: MIT
#include <map>
#include <utility>

#include "api/parse_parts.h"
#include "base/terminal.h"
#include "base/text.h"

namespace moestro {
namespace {

void AppendLine(std::string& text, const std::string& line, bool& is_first) {
  if (!is_first) text += '\n';
  is_first = false;
  text += line;
}

// Reads one message's blocks. Results of tools become turns of their own, in their place.
class BlockReader {
 public:
  BlockReader(std::string role, bool is_last_of_user,
              std::map<std::string, std::string>& tool_names, ApiRequest& request)
      : turn_(NewTurn(std::move(role))),
        is_last_of_user_(is_last_of_user),
        tool_names_(tool_names),
        request_(request),
        chat_(request.chat) {}

  ApiStatus Read(JsonView value, std::string where) {
    TRY(BodyFields block, BodyFields::Of(value, std::move(where)));
    TRY(const std::string type, block.NeededText("type"));
    const bool is_assistant = turn_.role == "assistant";
    if (type == "text") return ReadText(block);
    if (IsDocument(type) && !is_assistant) {
      TRY(const std::optional<std::string> text, ReadDocument(block));
      if (text) return AddText(*text);
    }
    if (type == "tool_result" && !is_assistant) return ReadResult(block);
    if (type == "tool_use" && is_assistant) return ReadUse(block);
    if (type == "thinking" && is_assistant) return ReadThinking(block);
    if (type == "redacted_thinking" && is_assistant) return {};  // readable for its author
    const bool is_of_other_role = is_assistant ? type == "tool_result" : IsOfAssistant(type);
    const bool is_medium = !is_assistant || type == "image" || type == "audio";
    if (!is_last_of_user_ && !is_of_other_role && is_medium)
      return AddText(LeftOut(block.where(), type, request_));
    // Skips results of a server's own tools and types that servers add later: if one such block
    // were refused, the conversation could never go on.
    if (is_assistant && !is_of_other_role) {
      Warn(request_, block.where(), type, "what servers do on their own is not read");
      return {};
    }
    return BadRequest(block.Name("type"),
                      Format("content of type \"{}\" is not offered in a message of role {}: the "
                             "model reads text, and calls of tools with their results",
                             Printable(type, 40), turn_.role));
  }

  // Adds the message's turn, also without blocks, unless all blocks were results of tools.
  void Finish() {
    if (has_content_ || !has_results_) chat_.turns.push_back(std::move(turn_));
  }

 private:
  static bool IsOfAssistant(std::string_view type) {
    return type == "tool_use" || type == "thinking" || type == "redacted_thinking";
  }

  ApiStatus AddText(const std::string& text) {
    AppendLine(turn_.content, text, is_first_text_);
    has_content_ = true;
    return {};
  }

  ApiStatus ReadText(BodyFields& block) {
    TRY(const std::optional<std::string> text, block.Text("text"));
    return AddText(text.value_or(""));
  }

  ApiStatus ReadResult(BodyFields& block) {
    if (has_content_) {
      chat_.turns.push_back(std::exchange(turn_, NewTurn(turn_.role)));
      has_content_ = false;
      is_first_text_ = true;
    }
    ChatTurn result = NewTurn("tool");
    TRY(std::optional<std::string> id, block.Text("tool_use_id"));
    result.call_id = std::move(id).value_or("");
    TRY(result.content, ReadEarlierContent(block, "content", request_));
    if (const auto name = tool_names_.find(result.call_id); name != tool_names_.end())
      result.name = name->second;
    chat_.turns.push_back(std::move(result));
    has_results_ = true;
    return {};
  }

  ApiStatus ReadUse(BodyFields& block) {
    ToolCall call;
    TRY(std::optional<std::string> id, block.Text("id"));
    call.id = std::move(id).value_or("");
    TRY(call.name, block.NeededText("name"));
    TRY(call.arguments, ReadArguments(block, "input"));
    tool_names_[call.id] = call.name;
    turn_.calls.push_back(std::move(call));
    has_content_ = true;
    return {};
  }

  ApiStatus ReadThinking(BodyFields& block) {
    TRY(const std::optional<std::string> thinking, block.Text("thinking"));
    TRY_STATUS(block.Text("signature"));  // of whichever server thought so
    AppendLine(turn_.reasoning, thinking.value_or(""), is_first_thought_);
    has_content_ = true;
    return {};
  }

  ChatTurn turn_;
  const bool is_last_of_user_;
  std::map<std::string, std::string>& tool_names_;  // by the call's id
  ApiRequest& request_;
  ChatInput& chat_;
  bool has_content_ = false;
  bool has_results_ = false;
  bool is_first_text_ = true;
  bool is_first_thought_ = true;
};

ApiStatus ReadOneMessage(BodyFields& message, bool is_last_of_user,
                         std::map<std::string, std::string>& tool_names, ApiRequest& request) {
  TRY(std::string role, message.NeededText("role"));
  if (role != "user" && role != "assistant" && role != "system")
    return WrongValue(message.Name("role"), "user or assistant", *message.Find("role"));
  const auto content = message.Find("content");
  if (!content || content->kind() != JsonKind::kArray) {
    TRY(std::string text, ReadContent(message, "content"));
    request.chat.turns.push_back(NewTurn(std::move(role), std::move(text)));
    return {};
  }
  BlockReader reader(std::move(role), is_last_of_user, tool_names, request);
  for (size_t i = 0; i < content->size(); ++i)
    TRY_STATUS(reader.Read(*content->At(i), message.Name("content", i)));
  reader.Finish();
  return {};
}

ApiStatus ReadMessageTools(BodyFields& body, ApiRequest& request) {
  TRY(const auto tools, body.Array("tools"));
  for (size_t i = 0; tools && i < tools->size(); ++i) {
    TRY(BodyFields tool, BodyFields::Of(*tools->At(i), body.Name("tools", i)));
    TRY(const std::optional<std::string> type, tool.Text("type"));
    if (type && *type != "custom") {
      Warn(request, tool.where(), *type,
           "only tools with an \"input_schema\" of your own can be called");
      continue;
    }
    TRY_STATUS(AddTool(tool, "input_schema", request.chat));
  }
  return {};
}

ApiStatus ReadMessageToolChoice(BodyFields& body, ChatInput& chat) {
  TRY(std::optional<BodyFields> choice, body.Fields("tool_choice"));
  if (!choice) return {};
  TRY(const auto no_parallel, choice->Boolean("disable_parallel_tool_use"));
  chat.parallel_calls = !no_parallel.value_or(false);
  TRY(const std::string type, choice->NeededText("type"));
  if (type == "auto") {
    chat.tool_use = ToolUse::kAuto;
  } else if (type == "none") {
    chat.tool_use = ToolUse::kNone;
  } else if (type == "any") {
    chat.tool_use = ToolUse::kRequired;
  } else if (type == "tool") {
    chat.tool_use = ToolUse::kNamed;
    TRY(chat.named_tool, choice->NeededText("name"));
  } else {
    return WrongValue(choice->Name("type"), "auto, any, tool or none", *choice->Find("type"));
  }
  return {};
}

ApiStatus ReadThinkingSwitch(BodyFields& body, ChatInput& chat) {
  TRY(std::optional<BodyFields> thinking, body.Fields("thinking"));
  if (!thinking) return {};
  TRY(const std::string type, thinking->NeededText("type"));
  if (type == "adaptive") return {};
  if (type != "enabled" && type != "disabled") {
    return WrongValue(thinking->Name("type"), "enabled, disabled or adaptive",
                      *thinking->Find("type"));
  }
  AddTemplateArgument("enable_thinking", type == "enabled", chat);
  return {};
}

ApiStatus ReadMessagesMaxTokens(BodyFields& body, ApiPurpose purpose, ApiRequest& request) {
  TRY(const auto max_tokens, body.Integer("max_tokens", {.least = 1}));
  if (max_tokens)
    request.max_tokens = *max_tokens;
  else if (purpose == ApiPurpose::kAnswer)
    return BadRequest("max_tokens", "\"max_tokens\" is missing: the most tokens to answer with");
  return {};
}

}  // namespace

ApiStatus ReadMessagesBody(BodyFields& body, ApiPurpose purpose, ApiRequest& request) {
  TRY(std::string system, ReadContent(body, "system"));
  if (!system.empty()) request.chat.turns.push_back(NewTurn("system", std::move(system)));
  TRY(const JsonView messages, body.NeededArray("messages"));
  if (messages.size() == 0)
    return BadRequest("messages", "\"messages\" must have at least one message");
  std::map<std::string, std::string> tool_names;
  const size_t last_of_user = LastOfUser(messages);
  for (size_t i = 0; i < messages.size(); ++i) {
    TRY(BodyFields message, BodyFields::Of(*messages.At(i), body.Name("messages", i)));
    TRY_STATUS(ReadOneMessage(message, i == last_of_user, tool_names, request));
  }
  // A last message of the assistant is a beginning, and the answer goes on with it.
  request.chat.continues_last = EndsInText(request.chat);
  TRY_STATUS(ReadMessageTools(body, request));
  TRY_STATUS(ReadMessageToolChoice(body, request.chat));
  TRY_STATUS(ReadThinkingSwitch(body, request.chat));
  TRY(std::optional<BodyFields> output, body.Fields("output_config"));
  if (output) {
    TRY_STATUS(ReadEffort(*output, "effort", request.chat));
    TRY(std::optional<BodyFields> format, output->Fields("format"));
    if (format) TRY_STATUS(ReadFormat(*format, true, request.form));
  }
  TRY_STATUS(ReadStops(body, "stop_sequences", request));
  return ReadMessagesMaxTokens(body, purpose, request);
}

}  // namespace moestro
