// SPDX-License-Identifier: MIT
#include "serve/checkpoints.h"

#include <algorithm>

#include "chat/kept_beginnings.h"
#include "serve/prompt_tokens.h"
#include "text/generate.h"

namespace moestro {
namespace {

// Fewer tokens are computed as quickly as a state is kept.
constexpr uint32_t kWorthKeeping = 16;
// The number of tokens that a conversation shares with the prompt; 0 if it cannot be rendered.
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
  std::vector<uint32_t> positions;
  for (const ChatInput& other : LikelyBeginnings(chat)) {
    positions.push_back(Shared(model, other, prompt, limit));
  }
  std::ranges::sort(positions);
  const auto again = std::ranges::unique(positions);
  positions.erase(again.begin(), again.end());
  std::erase_if(positions, [&](uint32_t n) { return n < kWorthKeeping || n >= prompt.size(); });
  return positions;
}

}  // namespace moestro
