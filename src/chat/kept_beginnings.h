// SPDX-License-Identifier: MIT
// Finds the beginnings of a conversation's prompt that later prompts are likely to share. Pure.
#pragma once

#include <vector>

#include "chat/chat_types.h"

namespace moestro {

// Conversations whose prompts begin like the prompt of `chat`, each up to a place where later turns
// may part from it: one with the same instructions and tools and another message, and `chat`
// without the beginning of an answer, which a later turn often renders otherwise.
std::vector<ChatInput> LikelyBeginnings(const ChatInput& chat);

}  // namespace moestro
