// SPDX-License-Identifier: MIT
// Ollama's small answers, for editors that speak nothing else.
#pragma once

#include <cstdint>
#include <string>

#include "api/api_error.h"
#include "api/api_request.h"
#include "api/server_bodies.h"

namespace moestro {

// "2026-01-31T12:00:00Z".
std::string UtcTime(int64_t seconds);

// {"error": "text"}.
std::string OllamaErrorBody(const ApiError& error);
// Whose interface this is: clients leave out what older ones lack.
std::string OllamaVersionBody();
// What is on disk, and what is in memory: the one model.
std::string OllamaTagsBody(const ServedModel& model);
std::string OllamaRunningBody(const ServedModel& model);
// The context that it tells is what one request may have.
std::string OllamaShowBody(const ServedModel& model);
// To a request without a prompt, which asks to have the model in memory.
std::string OllamaLoadedBody(const ApiRequest& request, const ReplyHead& head);

}  // namespace moestro
