// SPDX-License-Identifier: MIT
#include "serve/prompt_tokens.h"

#include <algorithm>
#include <cstdint>

#include "base/number.h"
#include "model/token_stream.h"

namespace moestro {
namespace {

constexpr size_t kLongestPiece = 32 * kKiB;  // see Session::Tokenize()
// Most tokens of one text, unless the context holds more: the list takes 1 MiB.
constexpr uint64_t kMostTokens = uint64_t{1} << 18;

}  // namespace

bool IsHopeless(const ReadyModel& model, size_t bytes) {
  const uint64_t longest = model.vocab.longest_token_bytes();
  return longest > 0 && bytes / longest > model.card.n_ctx;
}

ApiError TooManyBytes(const ReadyModel& model, size_t bytes) {
  return ContextExceeded(
      {.prompt = bytes / model.vocab.longest_token_bytes(), .most = model.card.n_ctx});
}

ApiResult<std::vector<Token>> TokensOf(const ReadyModel& model, const std::string& text,
                                       TokenWish wish, const WorkLimit& limit) {
  if (IsHopeless(model, text.size())) return std::unexpected(TooManyBytes(model, text.size()));
  TokenStream stream(model.vocab, FromText(text),
                     {.add_special = wish.add_special,
                      .parse_special = wish.parse_special,
                      .longest_piece_bytes = kLongestPiece});
  const uint64_t most = std::max<uint64_t>(kMostTokens, model.card.n_ctx);
  std::vector<Token> all;
  while (all.size() <= most) {
    if (const Status status = limit.Look(); !status) {
      return std::unexpected(ToApiError(status.error()));
    }
    const Result<std::vector<Token>> next = stream.Next();
    if (!next) return std::unexpected(ToApiError(next.error()));
    if (next->empty()) {
      all.shrink_to_fit();
      return all;
    }
    all.insert(all.end(), next->begin(), next->end());
  }
  return std::unexpected(ContextExceeded({.prompt = all.size(), .most = model.card.n_ctx}));
}

ApiResult<std::vector<Token>> PromptTokens(const ReadyModel& model, const std::string& text,
                                           const WorkLimit& limit) {
  return TokensOf(model, text, {}, limit);
}

ApiResult<std::vector<Token>> PromptTokens(const ReadyModel& model, const RenderedChat& chat,
                                           const WorkLimit& limit) {
  if (chat.plain.empty()) return PromptTokens(model, chat.prompt, limit);
  std::vector<Token> all;
  const auto add = [&](size_t from, size_t to, bool parses) -> ApiStatus {
    if (from == to) return {};
    TRY(const auto tokens, TokensOf(model, chat.prompt.substr(from, to - from),
                                    {.add_special = false, .parse_special = parses}, limit));
    all.insert(all.end(), tokens.begin(), tokens.end());
    return {};
  };
  size_t at = 0;
  for (const TextPart& part : chat.plain) {
    TRY_STATUS(add(at, part.begin, true));
    TRY_STATUS(add(part.begin, part.end, false));
    at = part.end;
  }
  TRY_STATUS(add(at, chat.prompt.size(), true));
  model.vocab.AddSpecial(all);
  return all;
}

}  // namespace moestro
