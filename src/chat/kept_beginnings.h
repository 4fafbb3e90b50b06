// SPDX-License-Identifier: MIT
// The beginnings of a conversation's prompt that later prompts are likely to have in common with
// it. Pure.
#pragma once

#include <vector>

#include "chat/chat_types.h"

namespace moestro {

// Conversations whose prompts begin as that of `chat` does, each up to a place where later turns
// may part from it: one with the same instructions and tools and another message, and the same one
// without the beginning of an answer, which a later turn often renders otherwise.
std::vector<ChatInput> LikelyBeginnings(const ChatInput& chat);

}  // namespace moestro
