// SPDX-License-Identifier: MIT
#include "serve/checkpoints.h"

#include <algorithm>
#include <utility>

#include "serve/prompt_tokens.h"
#include "text/generate.h"

namespace moestro {
namespace {

// Fewer tokens are computed as quickly as a state is kept.
constexpr uint32_t kWorthKeeping = 16;
// No message begins with it: a character for private use.
constexpr const char* kOtherMessage = "\xEE\x80\x80";

bool IsInstruction(const ChatTurn& turn) {
  return turn.role == "system" || turn.role == "developer";
}

// How many tokens a conversation shares with the prompt; 0 if it cannot be rendered.
uint32_t Shared(const ReadyModel& model, const ChatInput& chat, std::span<const Token> prompt,
                const WorkLimit& limit) {
  const Result<RenderedChat> rendered = model.format.Render(chat, {}, limit);
  if (!rendered) return 0;
  const ApiResult<std::vector<Token>> tokens = PromptTokens(model, *rendered, limit);
  return tokens ? static_cast<uint32_t>(CommonPrefix(*tokens, prompt)) : 0;
}

}  // namespace

std::vector<uint32_t> CheckpointsOf(const ReadyModel& model, const ChatInput& chat,
                                    std::span<const Token> prompt, const WorkLimit& limit) {
  ChatInput other{.turns = {},
                  .tools = chat.tools,
                  .tool_use = ToolUse::kNone,  // they stay in the prompt
                  .named_tool = {},
                  .template_arguments = chat.template_arguments,
                  .add_assistant = false};
  const auto messages = std::ranges::find_if_not(chat.turns, IsInstruction);
  other.turns.assign(chat.turns.begin(), messages);
  ChatTurn message;
  message.role = "user";
  message.content = kOtherMessage;
  other.turns.push_back(std::move(message));
  std::vector<uint32_t> positions = {Shared(model, other, prompt, limit)};
  if (!chat.continues_last) {
    other.turns = chat.turns;
    positions.push_back(Shared(model, other, prompt, limit));
  }
  std::ranges::sort(positions);
  const auto again = std::ranges::unique(positions);
  positions.erase(again.begin(), again.end());
  std::erase_if(positions, [&](uint32_t n) { return n < kWorthKeeping || n >= prompt.size(); });
  return positions;
}

}  // namespace moestro
