// SPDX-License-Identifier: MIT
// Calls as a model would have written them, for templates that leave calls out.
#pragma once

#include <span>
#include <string>

#include "chat/call_style.h"
#include "chat/chat_types.h"

namespace moestro {

// The calls in the model's style or, where content cannot hold that style, in PlainCallStyle().
// REQUIRES: `calls` is not empty.
std::string CallsText(const CallStyle& style, std::span<const ToolCall> calls);

}  // namespace moestro
