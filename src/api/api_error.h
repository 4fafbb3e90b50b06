// SPDX-License-Identifier: MIT
// The error of a client's request, in the terms of the wire formats.
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <string_view>

#include "base/result.h"

namespace moestro {

struct ApiError {
  int status = 500;                   // HTTP
  std::string type = "server_error";  // "invalid_request_error", "unavailable_error", ...
  std::string message = {};           // one line: what, which value, what to do
  std::string code = {};              // "context_length_exceeded", ...; empty: no code
  std::string param = {};             // the field at fault; empty: no field
};

template <class T>
using ApiResult = std::expected<T, ApiError>;
using ApiStatus = ApiResult<void>;

// 503: the server is going down.
ApiError GoingDown();
// 400: the client can mend the request.
[[nodiscard]] std::unexpected<ApiError> BadRequest(std::string param, std::string message);

// 400 for an error that the client can mend, GoingDown() for an interrupted call, 500 for all other
// errors.
ApiError ToApiError(const Error& error);
// 400 "context_length_exceeded"; the message has both numbers. max_tokens: tokens that were asked
// for beside the prompt; negative: no number was given.
ApiError ContextExceeded(uint64_t n_prompt, int64_t max_tokens, uint32_t n_ctx);
// 501 for an endpoint that is known and not offered.
ApiError NotOffered(std::string what);

// {"error": {"message", "type", "param", "code"}}, as OpenAI's clients read it.
std::string ErrorBody(const ApiError& error);
// {"type": "error", "error": {"type", "message"}, "request_id"}, as Anthropic's do. The type
// follows the status.
std::string MessagesErrorBody(const ApiError& error, std::string_view request_id);

}  // namespace moestro
