// SPDX-License-Identifier: MIT
// A client's request for embeddings, from the request's body to the reply.
//
// Thread rule: any thread; the thread waits for the engine.
#pragma once

#include "api/embeddings.h"
#include "serve/http_server.h"
#include "serve/ready_model.h"

namespace moestro {

// 501: the model writes text, and the message has the reason for which it gives no embeddings; 400:
// the body is wrong, or a text is too long; 504: the request's time is over; errors of
// Scheduler::Submit(). Returns early when the client leaves.
HttpReply AnswerEmbeddings(const ReadyModel& model, EmbedApi api, HttpRequest& request);

}  // namespace moestro
