// SPDX-License-Identifier: MIT
// A client's request for text, from the request's body to the last byte of the reply.
//
// Thread rule: any thread; the thread waits for the engine.
#pragma once

#include <string_view>

#include "api/api_request.h"
#include "serve/http_server.h"
#include "serve/ready_model.h"

namespace moestro {

// The reply to a body of the given kind. A whole reply is ready when this function returns. A
// streamed reply is written by HttpReply::stream, with a comment every few seconds while the answer
// has no news. When the client leaves, the request's jobs are withdrawn. The body is dropped as
// soon as it has been read. `model` outlives the reply.
HttpReply AnswerRequest(const ReadyModel& model, ApiKind kind, HttpRequest& request);

// An error in the kind's own form.
HttpReply ErrorReply(ApiKind kind, const ApiError& error, const RequestRecord& record);

// A client's request about a place: to save the place's text to a file, to restore a text from a
// file, to erase the text. A place is a number for one of the texts that are computed beside each
// other; llama-server and its clients call it a slot, in paths and flags.
//
// Thread rule: any thread; the thread waits for the engine, which does such tasks between two
// steps.

// `place`: the path's last part. 404 unless `place` is a number, 501 when the server was started
// without a folder for saved texts. Returns early when the client leaves.
HttpReply ChangePlace(const ReadyModel& model, const HttpRequest& request, std::string_view place);

}  // namespace moestro
