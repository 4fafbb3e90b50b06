// SPDX-License-Identifier: MIT
// Where later prompts of a conversation may part from this one. A state cannot be cut back, so the
// scheduler keeps the states at these positions.
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

// Numbers of tokens of `prompt`, which was rendered from `chat`, rising: what all conversations
// with these instructions and tools share, and what comes before the beginning of the answer, which
// a later turn often renders otherwise. The same conversation is rendered with another message, and
// without an answer; what cannot be rendered gives no position.
std::vector<uint32_t> CheckpointsOf(const ReadyModel& model, const ChatInput& chat,
                                    std::span<const Token> prompt, const WorkLimit& limit);

}  // namespace moestro
