// SPDX-License-Identifier: MIT
#include "api/api_error.h"

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "base/text.h"

namespace moestro {
namespace {

Json TextOrNull(const std::string& text) { return text.empty() ? Json() : Json(text); }

constexpr const char* kRemedy = "shorten the prompt or serve with a larger --ctx";

uint64_t TokensOf(const ContextOverflow& overflow) { return overflow.prompt + overflow.answer; }

uint64_t TokensBeyond(const ContextOverflow& overflow) {
  return TokensOf(overflow) - std::min<uint64_t>(TokensOf(overflow), overflow.most);
}

std::string MoreOf(const ContextOverflow& overflow) {
  return overflow.answer > 0 ? Format(" and {} more are asked for", overflow.answer) : "";
}

std::string LlamaOverflowMessage(const ContextOverflow& overflow) {
  return Format(
      "request ({} tokens) exceeds the available context size ({} tokens), try "
      "increasing it: {}",
      TokensOf(overflow), overflow.most, kRemedy);
}

// Anthropic's wording, in which the prompt's tokens include the ones requested for the answer.
std::string MessagesOverflowMessage(const ContextOverflow& overflow) {
  return Format(
      "prompt is too long: {} tokens > {} maximum{}; {}", TokensOf(overflow), overflow.most,
      overflow.answer > 0 ? Format(" ({} for the answer)", overflow.answer) : "", kRemedy);
}

Json OverflowNumbers(const ContextOverflow& overflow, Json inner) {
  inner.Set("n_prompt_tokens", overflow.prompt).Set("n_ctx", overflow.most);
  return inner;
}

const char* MessagesErrorType(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
    case 529:
      return "overloaded_error";
    default:
      return status < 500 ? "invalid_request_error" : "api_error";
  }
}

}  // namespace

ApiError GoingDown() {
  return {.status = 503,
          .type = "unavailable_error",
          .message = "the server is going down; ask again when it is back",
          .code = "server_shutdown"};
}

std::unexpected<ApiError> BadRequest(std::string param, std::string message) {
  return std::unexpected(ApiError{.status = 400,
                                  .type = "invalid_request_error",
                                  .message = std::move(message),
                                  .param = std::move(param)});
}

ApiError ToApiError(const Error& error) {
  switch (error.code) {
    case Errc::kUsage:
    case Errc::kInvalidRequest:
    case Errc::kUnsupported:
      return BadRequest("", error.message).error();
    case Errc::kInterrupted:
      return GoingDown();
    case Errc::kInvalidFile:
    case Errc::kIo:
    case Errc::kNoMemory:
    case Errc::kDevice:
      break;
  }
  return {.message = error.message};
}

ApiError ContextExceeded(const ContextOverflow& overflow) {
  ApiError error =
      BadRequest("", Format("this model's maximum context length is {} tokens, but the prompt has "
                            "{}{}: {}",
                            overflow.most, overflow.prompt, MoreOf(overflow), kRemedy))
          .error();
  error.code = "context_length_exceeded";
  error.overflow = overflow;
  return error;
}

ApiError NotOffered(std::string what) {
  return {.status = 501,
          .type = "not_supported_error",
          .message = std::move(what) + " is not offered by this server"};
}

std::string ErrorBody(const ApiError& error) {
  Json inner = Json::Object();
  inner.Set("message", error.message)
      .Set("type", error.type)
      .Set("param", TextOrNull(error.param))
      .Set("code", TextOrNull(error.code));
  if (error.overflow) inner = OverflowNumbers(*error.overflow, std::move(inner));
  return Json::Object().Set("error", std::move(inner)).Dump();
}

std::string LlamaOverflowBody(const ContextOverflow& overflow) {
  Json inner = Json::Object();
  inner.Set("code", 400)
      .Set("message", LlamaOverflowMessage(overflow))
      .Set("type", "exceed_context_size_error");
  return Json::Object().Set("error", OverflowNumbers(overflow, std::move(inner))).Dump();
}

// Ollama's own words, which contain only the difference, and those of llama-server, on which Ollama
// is built.
std::string OllamaErrorMessage(const ApiError& error) {
  if (!error.overflow) return error.message;
  return Format("prompt too long; exceeded max context length by {} tokens: {}",
                TokensBeyond(*error.overflow), LlamaOverflowMessage(*error.overflow));
}

std::string MessagesErrorBody(const ApiError& error, std::string_view request_id) {
  Json inner = Json::Object();
  inner.Set("type", MessagesErrorType(error.status))
      .Set("message", error.overflow ? MessagesOverflowMessage(*error.overflow) : error.message);
  Json body = Json::Object();
  body.Set("type", "error").Set("error", std::move(inner)).Set("request_id", request_id);
  return body.Dump();
}

}  // namespace moestro
