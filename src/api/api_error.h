// SPDX-License-Identifier: MIT
// The error of a client's request, in the terms of the wire formats.
#pragma once

#include <cstdint>
#include <expected>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace moestro {

// A request that the context does not hold. Agents shorten their conversation when they find the
// words in which a format's own server reports that, so each format has its own words (the
// functions below; ApiError::message has OpenAI's).
struct ContextOverflow {
  uint64_t prompt = 0;  // tokens
  uint64_t answer = 0;  // tokens beside the prompt that were counted, too
  uint32_t most = 0;    // tokens that the context holds
};

struct ApiError {
  int status = 500;                   // HTTP
  std::string type = "server_error";  // "invalid_request_error", "unavailable_error", ...
  std::string message = {};           // one line: the field, its value, the remedy
  std::string code = {};              // "context_length_exceeded", ...; empty: no code
  std::string param = {};             // the field at fault; empty: no field
  std::optional<ContextOverflow> overflow = {};
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
// 400 "context_length_exceeded"; the message has all numbers.
ApiError ContextExceeded(const ContextOverflow& overflow);
// 501 for an endpoint that exists elsewhere and is not offered here.
ApiError NotOffered(std::string what);

// {"error": {"message", "type", "param", "code"}}, the form for OpenAI's clients. An overflow also
// has llama-server's numbers.
std::string ErrorBody(const ApiError& error);
// The error body of an overflow in llama-server's words and with its type, for paths that only
// llama-server has.
std::string LlamaOverflowBody(const ContextOverflow& overflow);
// The message of an error for Ollama's clients.
std::string OllamaErrorMessage(const ApiError& error);
// {"type": "error", "error": {"type", "message"}, "request_id"}, as Anthropic's do. The type
// follows the status.
std::string MessagesErrorBody(const ApiError& error, std::string_view request_id);

}  // namespace moestro
