// SPDX-License-Identifier: MIT
// Calls as a model would have written them, for templates that leave calls out.
#pragma once

#include <span>
#include <string>

#include "chat/call_style.h"
#include "chat/chat_types.h"

namespace moestro {

// In the model's style or, where that cannot be written in content, as PlainCallStyle() has it.
// REQUIRES: there are calls.
std::string CallsText(const CallStyle& style, std::span<const ToolCall> calls);

}  // namespace moestro
