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
// When the client leaves, its jobs are withdrawn. `model` outlives the reply.
HttpReply AnswerRequest(const ReadyModel& model, ApiKind kind, const HttpRequest& request);

// The tokens of a text. 400 "context_length_exceeded" for one that is far beyond the context, which
// is not taken apart; 400 for one that is not UTF-8.
ApiResult<std::vector<Token>> TokensOf(const ReadyModel& model, const std::string& text,
                                       bool add_special, bool parse_special);
// Of a prompt as a template or a client wrote it: with the tokens that begin a text, unless they
// are spelled there.
ApiResult<std::vector<Token>> PromptTokens(const ReadyModel& model, const std::string& text);

// An error in the kind's own form.
HttpReply ErrorReply(ApiKind kind, const ApiError& error);

}  // namespace moestro
