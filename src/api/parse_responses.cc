// SPDX-License-Identifier: MIT
#include <map>
#include <utility>

#include "api/parse_parts.h"
#include "base/terminal.h"
#include "base/text.h"

namespace moestro {
namespace {

// Reads items into turns: one turn of a model comes as several items: reasoning, a message, calls.
class ItemReader {
 public:
  explicit ItemReader(ApiRequest& request) : request_(request), chat_(request.chat) {}

  ApiStatus Read(JsonView value, std::string where) {
    TRY(BodyFields item, BodyFields::Of(value, std::move(where)));
    TRY(std::optional<std::string> given, item.Text("type"));
    const std::string type = std::move(given).value_or("message");
    if (type == "message") return ReadMessage(item);
    if (type == "reasoning") return ReadReasoning(item);
    if (type == "function_call") return ReadCall(item, "arguments");
    if (type == "custom_tool_call") return ReadCall(item, "input");
    if (type == "local_shell_call") return ReadShellCall(item);
    const bool is_output = type == "function_call_output" || type == "custom_tool_call_output" ||
                           type == "local_shell_call_output";
    if (is_output) return ReadOutput(item);
    if (item.Find("role") && item.Find("content")) {
      return BadRequest(item.Name("type"),
                        Format("items of type \"{}\" have no role; what somebody says is of type "
                               "message",
                               Printable(type, 40)));
    }
    // Skips items that a server keeps or that report a server's work, and types that clients send
    // later: if one such item were refused, the conversation could never go on.
    Warn(request_, item.where(), type, "send what it says as messages and function calls");
    return {};
  }

 private:
  // The assistant's turn that `item` belongs to. A message after a call or another message is a new
  // turn.
  ChatTurn& AssistantTurn() {
    if (chat_.turns.empty() || chat_.turns.back().role != "assistant")
      chat_.turns.push_back(NewTurn("assistant"));
    return chat_.turns.back();
  }

  ApiStatus ReadMessage(BodyFields& item) {
    TRY(std::string role, item.NeededText("role"));
    if (role != "system" && role != "developer" && role != "user" && role != "assistant") {
      return WrongValue(item.Name("role"), "system, developer, user or assistant",
                        *item.Find("role"));
    }
    TRY(std::string content, ReadContent(item, "content"));
    if (role == "assistant") {
      ChatTurn& turn = AssistantTurn();
      if (turn.content.empty() && turn.calls.empty())
        turn.content = std::move(content);
      else
        chat_.turns.push_back(NewTurn(std::move(role), std::move(content)));
      return {};
    }
    chat_.turns.push_back(NewTurn(std::move(role), std::move(content)));
    return {};
  }

  // Takes the content, else the summary; encrypted content, which only its author can read, is left
  // out.
  ApiStatus ReadReasoning(BodyFields& item) {
    TRY(std::string reasoning, ReadContent(item, "content"));
    TRY(std::string summary, ReadContent(item, "summary"));
    if (reasoning.empty()) reasoning = std::move(summary);
    if (reasoning.empty()) return {};
    const ChatTurn& turn = AssistantTurn();
    if (!turn.content.empty() || !turn.calls.empty() || !turn.reasoning.empty())
      chat_.turns.push_back(NewTurn("assistant"));
    chat_.turns.back().reasoning = std::move(reasoning);
    return {};
  }

  ApiStatus ReadCall(BodyFields& item, std::string_view arguments_key) {
    ToolCall call;
    TRY(call.name, ReadToolName(item, request_));
    TRY(call.arguments, ReadArguments(item, arguments_key));
    return AddCall(item, std::move(call));
  }

  ApiStatus ReadShellCall(BodyFields& item) {
    ToolCall call;
    call.name = "local_shell";
    TRY(call.arguments, ReadArguments(item, "action"));
    return AddCall(item, std::move(call));
  }

  ApiStatus AddCall(BodyFields& item, ToolCall call) {
    TRY(std::optional<std::string> id, item.Text("call_id"));
    call.id = std::move(id).value_or("");
    names_[call.id] = call.name;
    AssistantTurn().calls.push_back(std::move(call));
    return {};
  }

  ApiStatus ReadOutput(BodyFields& item) {
    ChatTurn turn = NewTurn("tool");
    TRY(std::optional<std::string> id, item.Text("call_id"));
    turn.call_id = std::move(id).value_or("");
    TRY(turn.content, ReadToolResult(item, "output", request_));
    if (const auto name = names_.find(turn.call_id); name != names_.end()) turn.name = name->second;
    chat_.turns.push_back(std::move(turn));
    return {};
  }

  ApiRequest& request_;
  ChatInput& chat_;
  std::map<std::string, std::string> names_;  // tools' names by the call's id
};

ApiStatus ReadInput(BodyFields& body, ApiRequest& request) {
  ChatInput& chat = request.chat;
  TRY(std::optional<std::string> instructions, body.Text("instructions"));
  if (instructions && !instructions->empty())
    chat.turns.push_back(NewTurn("system", *std::move(instructions)));
  const auto input = body.Find("input");
  if (!input) return BadRequest("input", "\"input\" is missing");
  if (auto text = input->text()) {
    chat.turns.push_back(NewTurn("user", *std::move(text)));
    return {};
  }
  if (input->kind() != JsonKind::kArray || input->size() == 0)
    return WrongValue("input", "a string or an array of items", *input);
  ItemReader reader(request);
  for (size_t i = 0; i < input->size(); ++i)
    TRY_STATUS(reader.Read(*input->At(i), body.Name("input", i)));
  if (chat.turns.empty()) {
    return BadRequest("input",
                      "\"input\" has nothing that can be read here: send the whole conversation, "
                      "since nothing of it is kept");
  }
  return {};
}

// Refuses fields that refer to an earlier answer: the server keeps no answer once it has been sent.
ApiStatus CheckNeedsNoState(BodyFields& body) {
  for (const char* key : {"previous_response_id", "conversation", "prompt"}) {
    if (!body.Find(key)) continue;
    return BadRequest(key, Format("\"{}\" asks for something kept by the server, which keeps "
                                  "nothing: send the whole conversation as \"input\"",
                                  key));
  }
  TRY(const auto background, body.Boolean("background"));
  if (!background.value_or(false)) return {};
  return BadRequest("background",
                    "\"background\" is not offered: the answer comes with the request only");
}

ApiStatus ReadResponsesLogprobs(BodyFields& body, ApiRequest& request) {
  TRY(const auto top, body.Integer("top_logprobs", {.least = 0, .most = 20}));
  request.top_logprobs = static_cast<uint32_t>(top.value_or(0));
  request.logprobs = request.top_logprobs > 0;
  TRY(const auto include, body.Array("include"));
  for (size_t i = 0; include && i < include->size(); ++i) {
    if (include->At(i)->text() == "message.output_text.logprobs") request.logprobs = true;
  }
  return {};
}

}  // namespace

ApiStatus ReadResponsesBody(BodyFields& body, ApiRequest& request) {
  TRY_STATUS(CheckNeedsNoState(body));
  TRY_STATUS(ReadTools(body, true, request));  // before calls, whose names refer to tools
  TRY_STATUS(ReadInput(body, request));
  TRY_STATUS(ReadToolChoice(body, request));
  TRY(const auto parallel, body.Boolean("parallel_tool_calls"));
  request.chat.parallel_calls = parallel.value_or(true);
  TRY(std::optional<BodyFields> text, body.Fields("text"));
  if (text) {
    TRY(std::optional<BodyFields> format, text->Fields("format"));
    if (format) TRY_STATUS(ReadFormat(*format, true, request.form));
  }
  TRY(std::optional<BodyFields> reasoning, body.Fields("reasoning"));
  if (reasoning) TRY_STATUS(ReadEffort(*reasoning, "effort", request.chat));
  TRY_STATUS(ReadResponsesLogprobs(body, request));
  TRY_STATUS(ReadStops(body, "stop", request));
  return ReadMaxTokens(body, {"max_output_tokens"}, request);
}

}  // namespace moestro
