// SPDX-License-Identifier: MIT
#include "chat/kept_beginnings.h"

#include <algorithm>
#include <utility>

namespace moestro {
namespace {

// A character for private use, with which no client's message begins.
constexpr const char* kOtherMessage = "\xEE\x80\x80";

bool IsInstruction(const ChatTurn& turn) {
  return turn.role == "system" || turn.role == "developer";
}

}  // namespace

std::vector<ChatInput> LikelyBeginnings(const ChatInput& chat) {
  ChatInput other{.turns = {},
                  .tools = chat.tools,
                  .tool_use = ToolUse::kNone,  // tools stay in the prompt
                  .named_tool = {},
                  .template_arguments = chat.template_arguments,
                  .add_assistant = false};
  const auto messages = std::ranges::find_if_not(chat.turns, IsInstruction);
  other.turns.assign(chat.turns.begin(), messages);
  ChatTurn message;
  message.role = "user";
  message.content = kOtherMessage;
  other.turns.push_back(std::move(message));
  std::vector<ChatInput> beginnings = {other};
  if (chat.continues_last) return beginnings;
  other.turns = chat.turns;
  beginnings.push_back(std::move(other));
  return beginnings;
}

}  // namespace moestro
