// SPDX-License-Identifier: MIT
// What a client is told when its request fails, in the terms of the wire.
#pragma once

#include <string>

#include "base/result.h"

namespace moestro {

struct ApiError {
  int status = 500;                   // HTTP
  std::string type = "server_error";  // "invalid_request_error", "unavailable_error", ...
  std::string message;                // one line: what, which value, what to do
  std::string code = {};              // "context_length_exceeded", ...; empty: none
  std::string param = {};             // the field at fault; empty: none
};

// 400 for what the client can mend, 500 for the rest.
ApiError ToApiError(const Error& error);

// {"error": {"message", "type", "param", "code"}}, as OpenAI's clients read it.
std::string ErrorBody(const ApiError& error);
// {"type": "error", "error": {"type", "message"}}, as Anthropic's do.
std::string MessagesErrorBody(const ApiError& error);

}  // namespace moestro
