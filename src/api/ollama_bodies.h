// SPDX-License-Identifier: MIT
// Ollama's small answers, for editors that speak only Ollama's interface.
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
// The version of Ollama that has this interface: clients leave out what older versions lack.
std::string OllamaVersionBody();
// The models on disk, and the models in memory: the one model.
std::string OllamaTagsBody(const ServedModel& model);
std::string OllamaRunningBody(const ServedModel& model);
// 400 unless the body names a model, which may be any.
ApiStatus CheckOllamaShow(std::string_view body, const WorkLimit& limit);
// The context in this body is the tokens that one request may have.
std::string OllamaShowBody(const ServedModel& model);
// The answer to a request without a prompt, which only loads the model.
std::string OllamaLoadedBody(const ApiRequest& request, const ReplyHead& head);

}  // namespace moestro
