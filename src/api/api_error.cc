// SPDX-License-Identifier: MIT
#include "api/api_error.h"

#include <utility>

#include "base/format.h"
#include "base/json.h"

namespace moestro {
namespace {

Json TextOrNull(const std::string& text) { return text.empty() ? Json() : Json(text); }

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

ApiError ContextExceeded(uint64_t n_prompt, int64_t max_tokens, uint32_t n_ctx) {
  std::string message = Format("the prompt has {} tokens", n_prompt);
  if (max_tokens >= 0) message += Format(" and {} more were asked for", max_tokens);
  message +=
      Format("; the context holds {}: shorten the prompt or serve with a larger --ctx", n_ctx);
  ApiError error = BadRequest("", std::move(message)).error();
  error.code = "context_length_exceeded";
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
  return Json::Object().Set("error", std::move(inner)).Dump();
}

std::string MessagesErrorBody(const ApiError& error, std::string_view request_id) {
  Json inner = Json::Object();
  inner.Set("type", MessagesErrorType(error.status)).Set("message", error.message);
  Json body = Json::Object();
  body.Set("type", "error").Set("error", std::move(inner)).Set("request_id", request_id);
  return body.Dump();
}

}  // namespace moestro
