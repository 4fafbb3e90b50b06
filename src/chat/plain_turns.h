// SPDX-License-Identifier: MIT
// Puts a conversation into the terms of a template: everything that the template cannot write
// becomes text.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "chat/answer_style.h"
#include "chat/call_style.h"
#include "chat/chat_types.h"
#include "chat/template_traits.h"

namespace moestro {

// Calls as a model would have written them, for templates that leave calls out.

// The calls in the model's style or, where content cannot hold that style, in PlainCallStyle().
// REQUIRES: `calls` is not empty.
std::string CallsText(const CallStyle& style, std::span<const ToolCall> calls);

// Turns for a template of these traits. Tools that the template cannot describe are described in
// the system's turn.
std::vector<ChatTurn> PlainTurns(const ChatInput& input, const TemplateTraits& traits,
                                 const AnswerStyle& style);

// Whether calls in this style can be described to a model by an example.
bool HasExample(const CallStyle& style);

// Renderings without a template: ChatML, or lines of "role: text".
std::string RenderChatMl(const std::vector<ChatTurn>& turns, bool add_assistant);
std::string RenderLines(const std::vector<ChatTurn>& turns, bool add_assistant);

}  // namespace moestro
