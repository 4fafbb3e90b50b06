// SPDX-License-Identifier: MIT
// Turns a client's body into work for the engine: the prompts' tokens, and the jobs.
//
// Thread rule: any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/api_request.h"
#include "base/work_limit.h"
#include "chat/chat_format.h"
#include "chat/chat_types.h"
#include "core/ids.h"
#include "serve/ready_model.h"
#include "serve/relay.h"

namespace moestro {

// Finds positions at which later prompts of a conversation may part from this prompt. A state
// cannot be cut back, so the scheduler keeps the states at these positions.
//
// Thread rule: any thread.

// Numbers of tokens of `prompt`, which was rendered from `chat`, rising: the end of the part that
// all conversations with these instructions and tools share, and a place before the beginning of
// the answer, which a later turn often renders otherwise. Found by rendering the conversation with
// another message, and without an answer; a conversation that cannot be rendered gives no position.
std::vector<uint32_t> CheckpointsOf(const ReadyModel& model, const ChatInput& chat,
                                    std::span<const Token> prompt, const WorkLimit& limit);

// 64 bits from the system's source of random numbers.
uint64_t RandomBits();

// Makes the body's jobs and submits them. Waits for a turn (preparing.h), and for a grammar's
// trial. 400: the body is wrong, or takes too long; 429 and 503 as Scheduler::Submit(); 503 also
// when other requests keep all the bytes.
ApiResult<Work> MakeWork(const ReadyModel& model, ApiKind kind, std::string body);

// The prompt of a conversation, without answering it.
ApiResult<RenderedChat> RenderedPrompt(const ReadyModel& model, ApiKind kind, std::string_view body,
                                       const WorkLimit& limit);

}  // namespace moestro
