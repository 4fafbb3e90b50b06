// SPDX-License-Identifier: MIT
// Turns a client's body into work for the engine: the prompts' tokens, and the jobs.
//
// Thread rule: any thread.
#pragma once

#include <string>
#include <string_view>

#include "api/api_request.h"
#include "base/work_limit.h"
#include "chat/chat_format.h"
#include "serve/ready_model.h"
#include "serve/relay.h"

namespace moestro {

// Makes the body's jobs and submits them. Waits for a turn (preparing.h), and for a grammar's
// trial. 400: the body is wrong, or takes too long; 429 and 503 as Scheduler::Submit(); 503 also
// when other requests keep all the bytes.
ApiResult<Work> MakeWork(const ReadyModel& model, ApiKind kind, std::string body);

// The prompt of a conversation, without answering it.
ApiResult<RenderedChat> RenderedPrompt(const ReadyModel& model, ApiKind kind, std::string_view body,
                                       const WorkLimit& limit);

}  // namespace moestro
