// SPDX-License-Identifier: MIT
#include <map>
#include <utility>

#include "api/parse_parts.h"
#include "base/terminal.h"
#include "base/text.h"

namespace moestro {
namespace {

constexpr std::string_view kPrevious = "previous_response_id";
// Bytes of a conversation that is stored, so that requests which go on from it take little memory.
constexpr size_t kMostStored = size_t{4} << 20;

// Reads items into turns: one turn of a model comes as several items: reasoning, a message, calls.
class ItemReader {
 public:
  explicit ItemReader(ApiRequest& request) : request_(request), chat_(request.chat) {}

  ApiStatus Read(JsonView value, std::string where, bool is_last_of_user) {
    TRY(BodyFields item, BodyFields::Of(value, std::move(where)));
    TRY(std::optional<std::string> given, item.Text("type"));
    const std::string type = std::move(given).value_or("message");
    if (type == "message") return ReadMessage(item, is_last_of_user);
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

  ApiStatus ReadMessage(BodyFields& item, bool is_last_of_user) {
    TRY(std::string role, item.NeededText("role"));
    if (role != "system" && role != "developer" && role != "user" && role != "assistant") {
      return WrongValue(item.Name("role"), "system, developer, user or assistant",
                        *item.Find("role"));
    }
    TRY(std::string content, is_last_of_user ? ReadContent(item, "content")
                                             : ReadEarlierContent(item, "content", request_));
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
    TRY(turn.content, ReadEarlierContent(item, "output", request_));
    if (const auto name = names_.find(turn.call_id); name != names_.end()) turn.name = name->second;
    chat_.turns.push_back(std::move(turn));
    return {};
  }

  ApiRequest& request_;
  ChatInput& chat_;
  std::map<std::string, std::string> names_;  // tools' names by the call's id
};

// Items up to a stored answer come before the request's own, and behind its instructions: those of
// earlier requests do not hold for this one.
ApiStatus ReadInput(BodyFields& body, const Json& recalled, ApiRequest& request) {
  ChatInput& chat = request.chat;
  TRY(std::optional<std::string> instructions, body.Text("instructions"));
  if (instructions && !instructions->empty())
    chat.turns.push_back(NewTurn("system", *std::move(instructions)));
  ItemReader reader(request);
  for (size_t i = 0; i < recalled.size(); ++i)
    TRY_STATUS(reader.Read(*recalled.At(i), body.Name(kPrevious, i), false));
  const auto input = body.Find("input");
  if (!input) return BadRequest("input", "\"input\" is missing");
  if (auto text = input->text()) {
    chat.turns.push_back(NewTurn("user", *std::move(text)));
    return {};
  }
  if (input->kind() != JsonKind::kArray || input->size() == 0)
    return WrongValue("input", "a string or an array of items", *input);
  const size_t last_of_user = LastOfUser(*input);
  for (size_t i = 0; i < input->size(); ++i)
    TRY_STATUS(reader.Read(*input->At(i), body.Name("input", i), i == last_of_user));
  if (chat.turns.empty()) {
    return BadRequest("input",
                      "\"input\" has nothing that can be read here: send messages, calls and their "
                      "outputs as items");
  }
  return {};
}

// Refuses fields that refer to what a server keeps beside answers, and work behind an answer.
ApiStatus CheckNeedsNoState(BodyFields& body) {
  for (const char* key : {"conversation", "prompt"}) {
    if (!body.Find(key)) continue;
    return BadRequest(key, Format("\"{}\" asks for something kept by the server, which keeps no "
                                  "such thing: send the conversation as \"input\"",
                                  key));
  }
  TRY(const auto background, body.Boolean("background"));
  if (!background.value_or(false)) return {};
  return BadRequest("background",
                    "\"background\" is not offered: the answer comes with the request only");
}

// The items of the stored answer that the request goes on from; an empty array: it names none.
ApiResult<Json> ReadPrevious(BodyFields& body, const RecallItems& recall, ApiRequest& request) {
  TRY(std::optional<std::string> id, body.Text(kPrevious));
  if (!id) return Json::Array();
  if (!recall) {
    return BadRequest(std::string(kPrevious),
                      "\"previous_response_id\" asks for a stored answer, and this server keeps "
                      "nothing: send the whole conversation as \"input\", or start the server with "
                      "--response-store DIR");
  }
  request.previous = *std::move(id);
  return recall(request.previous);
}

// The request's input as items.
void PushInput(JsonView input, Json& items) {
  if (auto text = input.text()) {
    Json message = Json::Object();
    message.Set("type", "message").Set("role", "user").Set("content", *std::move(text));
    items.Push(std::move(message));
    return;
  }
  for (size_t i = 0; i < input.size(); ++i) items.Push(input.At(i)->Copy());
}

// Whether the answer shall be stored, as OpenAI's are unless a request has it otherwise, and the
// items that are stored with it. REQUIRES: the input was read.
ApiStatus ReadStore(BodyFields& body, const ResponsesContext& context, Json recalled,
                    ApiRequest& request) {
  TRY(const auto store, body.Boolean("store"));
  if (!context.recall) {
    if (!store.value_or(false)) return {};
    request.warnings.emplace_back(
        "store is left out: this server was started without --response-store");
    return {};
  }
  if (!store.value_or(true)) return {};
  if (context.body_bytes <= kMostStored) {
    PushInput(*body.Find("input"), recalled);
    request.items = recalled.Dump();
  }
  request.stores = !request.items.empty() && request.items.size() <= kMostStored;
  if (request.stores) return {};
  request.items.clear();
  request.warnings.push_back(
      Format("store is left out: the conversation is longer than {} MiB", kMostStored >> 20U));
  return {};
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

ApiStatus ReadResponsesBody(BodyFields& body, const ResponsesContext& context,
                            ApiRequest& request) {
  TRY_STATUS(CheckNeedsNoState(body));
  TRY(Json recalled, ReadPrevious(body, context.recall, request));
  TRY_STATUS(ReadTools(body, true, request));  // before calls, whose names refer to tools
  TRY_STATUS(ReadInput(body, recalled, request));
  if (context.purpose == ApiPurpose::kAnswer)
    TRY_STATUS(ReadStore(body, context, std::move(recalled), request));
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
