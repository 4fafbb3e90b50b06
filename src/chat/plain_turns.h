// SPDX-License-Identifier: MIT
// Says a conversation in the terms that a template knows: what it has no words for becomes text.
#pragma once

#include <string>
#include <vector>

#include "chat/answer_style.h"
#include "chat/chat_types.h"
#include "chat/template_traits.h"

namespace moestro {

// Turns for a template of these traits. Tools that it cannot describe are described in the system's
// turn.
std::vector<ChatTurn> PlainTurns(const ChatInput& input, const TemplateTraits& traits,
                                 const AnswerStyle& style);

// Calls that the model's template writes like this can be asked for in words.
bool HasExample(const CallStyle& style);

// Without a template: ChatML, or lines of "role: text".
std::string RenderChatMl(const std::vector<ChatTurn>& turns, bool add_assistant);
std::string RenderLines(const std::vector<ChatTurn>& turns, bool add_assistant);

}  // namespace moestro
