// SPDX-License-Identifier: MIT
// What a client is told when its request fails, in the terms of the wire.
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
  std::string code = {};              // "context_length_exceeded", ...; empty: none
  std::string param = {};             // the field at fault; empty: none
};

template <class T>
using ApiResult = std::expected<T, ApiError>;
using ApiStatus = ApiResult<void>;

// 503: the server is going down.
ApiError GoingDown();
// 400: the client can mend it.
[[nodiscard]] std::unexpected<ApiError> BadRequest(std::string param, std::string message);

// 400 for what the client can mend, GoingDown() for what was interrupted, 500 for the rest.
ApiError ToApiError(const Error& error);
// 400 "context_length_exceeded", with both numbers. max_tokens: what was asked for beside the
// prompt; negative: nothing.
ApiError ContextExceeded(uint64_t n_prompt, int64_t max_tokens, uint32_t n_ctx);
// 501 for an endpoint that is known and not offered.
ApiError NotOffered(std::string what);

// {"error": {"message", "type", "param", "code"}}, as OpenAI's clients read it.
std::string ErrorBody(const ApiError& error);
// {"type": "error", "error": {"type", "message"}, "request_id"}, as Anthropic's do. The type
// follows the status.
std::string MessagesErrorBody(const ApiError& error, std::string_view request_id);

}  // namespace moestro
