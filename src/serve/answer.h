// SPDX-License-Identifier: MIT
// A client's request for text, from its body to the last byte of the reply.
//
// Thread rule: any thread; it waits for the engine.
#pragma once

#include <string_view>

#include "api/api_request.h"
#include "serve/http_server.h"
#include "serve/ready_model.h"

namespace moestro {

// The reply to a body of that kind. Whole replies are ready when this returns; streamed ones are
// written by HttpReply::stream, with a comment every few seconds while there is nothing to say.
// When the client leaves, its jobs are withdrawn. The body is gone as soon as it has been read.
// `model` outlives the reply.
HttpReply AnswerRequest(const ReadyModel& model, ApiKind kind, HttpRequest& request);

// An error in the kind's own form.
HttpReply ErrorReply(ApiKind kind, const ApiError& error, const RequestRecord& record);

}  // namespace moestro
