// SPDX-License-Identifier: MIT
#include <utility>

#include "api/parse_parts.h"
#include "base/text.h"

namespace moestro {
namespace {

ApiStatus AddCall(BodyFields& function, std::string id, ChatTurn& turn) {
  ToolCall call{.id = std::move(id), .name = {}, .arguments = {}};
  TRY(call.name, function.NeededText("name"));
  TRY(call.arguments, ReadArguments(function, "arguments"));
  turn.calls.push_back(std::move(call));
  return {};
}

// Null ids are common among clients that answer one call at a time.
ApiStatus ReadCalls(BodyFields& message, ChatTurn& turn) {
  TRY(const auto calls, message.Array("tool_calls"));
  for (size_t i = 0; calls && i < calls->size(); ++i) {
    TRY(BodyFields call, BodyFields::Of(*calls->At(i), message.Name("tool_calls", i)));
    TRY(std::optional<std::string> id, call.Text("id"));
    TRY(std::optional<BodyFields> function, call.Fields("function"));
    if (!function) {
      return BadRequest(call.Name("function"), Format("\"{}\" is missing: the call's name and "
                                                      "arguments",
                                                      call.Name("function")));
    }
    TRY_STATUS(AddCall(*function, std::move(id).value_or(""), turn));
  }
  TRY(std::optional<BodyFields> old, message.Fields("function_call"));
  if (!old) return {};
  return AddCall(*old, "", turn);
}

ApiResult<std::string> ReadRole(BodyFields& message) {
  TRY(std::string role, message.NeededText("role"));
  if (role == "function") return "tool";  // the older name of this role
  for (const char* known : {"system", "developer", "user", "assistant", "tool"}) {
    if (role == known) return role;
  }
  return WrongValue(message.Name("role"), "system, developer, user, assistant or tool",
                    *message.Find("role"));
}

ApiResult<ChatTurn> ReadChatMessage(BodyFields& message, bool is_last_of_user,
                                    ApiRequest& request) {
  ChatTurn turn;
  TRY(turn.role, ReadRole(message));
  TRY(turn.content, is_last_of_user ? ReadContent(message, "content")
                                    : ReadEarlierContent(message, "content", request));
  if (turn.role == "assistant") {
    if (message.Find("audio") && turn.content.empty())
      turn.content = LeftOut(message.Name("audio"), "audio", request);
    TRY(std::optional<std::string> reasoning, message.Text("reasoning_content"));
    if (!reasoning) {
      TRY(reasoning, message.Text("reasoning"));
    }
    turn.reasoning = std::move(reasoning).value_or("");
    TRY_STATUS(ReadCalls(message, turn));
  }
  if (turn.role == "tool") {
    TRY(std::optional<std::string> id, message.Text("tool_call_id"));
    turn.call_id = std::move(id).value_or("");
    TRY(std::optional<std::string> name, message.Text("name"));
    turn.name = std::move(name).value_or("");
  }
  return turn;
}

ApiStatus ReadChatLogprobs(BodyFields& body, ApiRequest& request) {
  TRY(const auto logprobs, body.Boolean("logprobs"));
  request.logprobs = logprobs.value_or(false);
  TRY(const auto top, body.Integer("top_logprobs", {.least = 0, .most = 20}));
  request.top_logprobs = static_cast<uint32_t>(top.value_or(0));
  if (request.top_logprobs > 0 && !request.logprobs)
    return BadRequest("top_logprobs", "\"top_logprobs\" needs \"logprobs\" to be true");
  return {};
}

ApiStatus ReadStreamOptions(BodyFields& body, ApiRequest& request) {
  TRY(std::optional<BodyFields> options, body.Fields("stream_options"));
  if (!options) return {};
  TRY(const auto include_usage, options->Boolean("include_usage"));
  request.include_usage = include_usage.value_or(false);
  return {};
}

// Whether the answer goes on with the last message. If the request has neither field, the answer
// does so after a text of the assistant, as with llama-server.
ApiStatus ReadContinuation(BodyFields& body, ChatInput& chat) {
  TRY(const auto add_assistant, body.Boolean("add_generation_prompt"));
  TRY(const auto continues, body.Boolean("continue_final_message"));
  chat.add_assistant = add_assistant.value_or(true);
  const bool can_continue = EndsInText(chat);
  if (!continues) {
    chat.continues_last = can_continue && !add_assistant;
    return {};
  }
  chat.continues_last = *continues;
  if (*continues && add_assistant == true) {
    return BadRequest("continue_final_message",
                      "\"continue_final_message\" and \"add_generation_prompt\" exclude each "
                      "other: the answer goes on with the last message, or is a new one");
  }
  if (*continues && !can_continue) {
    return BadRequest("continue_final_message",
                      "\"continue_final_message\" needs a last message of the assistant, with text "
                      "and without calls");
  }
  return {};
}

}  // namespace

ApiStatus ReadChatBody(BodyFields& body, ApiRequest& request) {
  TRY(const JsonView messages, body.NeededArray("messages"));
  if (messages.size() == 0)
    return BadRequest("messages", "\"messages\" must have at least one message");
  const size_t last_of_user = LastOfUser(messages);
  for (size_t i = 0; i < messages.size(); ++i) {
    TRY(BodyFields message, BodyFields::Of(*messages.At(i), body.Name("messages", i)));
    TRY(ChatTurn turn, ReadChatMessage(message, i == last_of_user, request));
    request.chat.turns.push_back(std::move(turn));
  }
  TRY_STATUS(ReadTools(body, false, request));
  TRY_STATUS(ReadToolChoice(body, request));
  TRY(const auto parallel, body.Boolean("parallel_tool_calls"));
  request.chat.parallel_calls = parallel.value_or(true);
  TRY_STATUS(ReadContinuation(body, request.chat));
  TRY(std::optional<BodyFields> format, body.Fields("response_format"));
  if (format) TRY_STATUS(ReadFormat(*format, false, request.form));
  TRY_STATUS(ReadChatLogprobs(body, request));
  TRY_STATUS(ReadStreamOptions(body, request));
  TRY_STATUS(ReadEffort(body, "reasoning_effort", request.chat));
  TRY_STATUS(ReadMaxTokens(body, {"max_completion_tokens", "max_tokens", "n_predict"}, request));
  TRY_STATUS(ReadStops(body, "stop", request));
  return ReadAnswers(body, 1, request);
}

namespace {

constexpr size_t kMostPrompts = 256;

ApiStatus AddTokens(JsonView array, const std::string& where, uint32_t n_vocab,
                    ApiRequest& request) {
  TRY(std::vector<Token> tokens, ReadTokenIds(array, where, n_vocab));
  if (tokens.empty()) return BadRequest(where, Format("\"{}\" must have a token", where));
  request.prompts.emplace_back(std::move(tokens));
  return {};
}

// Reads a string or tokens: an array of numbers is one prompt, any other array a list of prompts.
ApiStatus ReadPrompts(BodyFields& body, uint32_t n_vocab, ApiRequest& request) {
  constexpr std::string_view kKey = "prompt";
  const auto prompt = body.Find(kKey);
  if (!prompt) return BadRequest("prompt", "\"prompt\" is missing");
  if (auto text = prompt->text()) {
    request.prompts.emplace_back(*std::move(text));
    return {};
  }
  if (prompt->kind() != JsonKind::kArray || prompt->size() == 0)
    return WrongValue("prompt", "a string, an array of strings, or tokens", *prompt);
  if (prompt->At(0)->kind() == JsonKind::kNumber)
    return AddTokens(*prompt, "prompt", n_vocab, request);
  if (prompt->size() > kMostPrompts)
    return WrongValue("prompt", Format("at most {} prompts", kMostPrompts), *prompt);
  for (size_t i = 0; i < prompt->size(); ++i) {
    const JsonView one = *prompt->At(i);
    if (auto text = one.text()) {
      request.prompts.emplace_back(*std::move(text));
      continue;
    }
    if (one.kind() != JsonKind::kArray)
      return WrongValue(body.Name(kKey, i), "a string or an array of tokens", one);
    TRY_STATUS(AddTokens(one, body.Name(kKey, i), n_vocab, request));
  }
  return {};
}

}  // namespace

ApiStatus ReadCompletionBody(BodyFields& body, uint32_t n_vocab, ApiRequest& request) {
  TRY_STATUS(ReadPrompts(body, n_vocab, request));
  TRY(std::optional<std::string> suffix, body.Text("suffix"));
  if (suffix && !suffix->empty()) {
    return BadRequest(
        "suffix",
        "\"suffix\" asks for the middle of a text, which is not offered: leave it out "
        "and the prompt goes on");
  }
  TRY(const auto echo, body.Boolean("echo"));
  request.echo = echo.value_or(false);
  TRY(const auto logprobs, body.Integer("logprobs", {.least = 0, .most = 20}));
  request.logprobs = logprobs.has_value();
  request.top_logprobs = static_cast<uint32_t>(logprobs.value_or(0));
  TRY(std::optional<BodyFields> options, body.Fields("stream_options"));
  if (options) {
    TRY(const auto include_usage, options->Boolean("include_usage"));
    request.include_usage = include_usage.value_or(false);
  }
  TRY(std::optional<BodyFields> format, body.Fields("response_format"));
  if (format) TRY_STATUS(ReadFormat(*format, false, request.form));
  TRY_STATUS(ReadMaxTokens(body, {"max_tokens", "n_predict"}, request));
  TRY_STATUS(ReadStops(body, "stop", request));
  TRY_STATUS(ReadAnswers(body, request.prompts.size(), request));
  TRY(const auto best_of, body.Integer("best_of", {.least = 0}));
  if (!best_of || *best_of == request.n) return {};
  return WrongValue("best_of",
                    Format("{}, as many as \"n\": all answers are given back", request.n),
                    *body.Find("best_of"));
}

}  // namespace moestro
