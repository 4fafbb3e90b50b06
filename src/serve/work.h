// SPDX-License-Identifier: MIT
// What a client's body becomes before the engine sees it: a prompt's tokens, and a job for each
// prompt.
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

// The body's jobs, which wait for the engine by then. Waits for a turn (preparing.h), and for a
// grammar's trial. 400 for what is wrong with the body or takes too long; 429 and 503 as
// Scheduler::Submit(), and 503 when what others keep takes all the room.
ApiResult<Work> MakeWork(const ReadyModel& model, ApiKind kind, std::string body);

// The prompt of a conversation, without answering it.
ApiResult<RenderedChat> RenderedPrompt(const ReadyModel& model, ApiKind kind, std::string_view body,
                                       const WorkLimit& limit);

}  // namespace moestro
