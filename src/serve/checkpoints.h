// SPDX-License-Identifier: MIT
// Finds positions at which later prompts of a conversation may part from this prompt. A state
// cannot be cut back, so the scheduler keeps the states at these positions.
//
// Thread rule: any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/work_limit.h"
#include "chat/chat_types.h"
#include "core/ids.h"
#include "serve/ready_model.h"

namespace moestro {

// Numbers of tokens of `prompt`, which was rendered from `chat`, rising: the end of the part that
// all conversations with these instructions and tools share, and a place before the beginning of
// the answer, which a later turn often renders otherwise. Found by rendering the conversation with
// another message, and without an answer; a conversation that cannot be rendered gives no position.
std::vector<uint32_t> CheckpointsOf(const ReadyModel& model, const ChatInput& chat,
                                    std::span<const Token> prompt, const WorkLimit& limit);

}  // namespace moestro
