// SPDX-License-Identifier: MIT
#include "text/text_tokens.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/bytes.h"
#include "base/system_limits.h"

namespace moestro {
namespace {

// Memory for everything else that grows while a text is read: the tokens themselves, buffers of
// files.
constexpr uint64_t kLeftAlone = 8 * kMiB;

// Bytes that the budget leaves now.
uint64_t RoomFor(const EngineOptions& options) {
  const uint64_t used = ResidentMemory();
  const uint64_t budget = options.ram_bytes > 0 ? options.ram_bytes : used + AvailableMemory() / 2;
  return budget - std::min(budget, used + kLeftAlone);
}

std::unexpected<Error> TooLong(const std::string& size, const ContextLimit& limit) {
  return Fail(Errc::kInvalidRequest,
              "a prompt of {} does not fit a context of {}; raise --ctx (this model allows {})",
              size, limit.n_ctx, limit.n_ctx_train);
}

}  // namespace

size_t LongestPiece(const EngineOptions& options) {
  return static_cast<size_t>(std::clamp<uint64_t>(RoomFor(options) / kTokenizeBytesPerByte,
                                                  TokenStream::Options{}.piece_bytes,
                                                  std::numeric_limits<int32_t>::max() / 4));
}

Result<Prompt> ReadPrompt(const Vocab& vocab, const TextSource& source, const ContextLimit& limit,
                          const EngineOptions& options) {
  Prompt prompt;
  // A text this long has more tokens than the context holds.
  const uint64_t most_bytes = uint64_t{vocab.longest_token_bytes()} * limit.n_ctx;
  const TextSource kept = [&](size_t most) -> Result<std::string> {
    TRY(std::string text, source(most));
    prompt.text += text;
    if (vocab.longest_token_bytes() == 0 || prompt.text.size() <= most_bytes) return text;
    return TooLong(Format("more than {}", FormatBytes(most_bytes)), limit);
  };
  TokenStream stream(vocab, kept,
                     {.parse_special = true, .longest_piece_bytes = LongestPiece(options)});
  TRY(prompt.tokens, Collect(stream, uint64_t{limit.n_ctx} + 1));
  if (prompt.tokens.size() <= limit.n_ctx) return prompt;
  return TooLong(Format("more than {} tokens", limit.n_ctx), limit);
}

Result<std::vector<Token>> TokenizeText(const Vocab& vocab, TextSource source,
                                        const std::string& name, uint64_t most,
                                        const EngineOptions& options, bool parse_special) {
  TokenStream stream(
      vocab, std::move(source),
      {.parse_special = parse_special, .longest_piece_bytes = LongestPiece(options)});
  // A growing list exists twice for a while, the second time with room to grow.
  const uint64_t holds = RoomFor(options) / (3 * sizeof(Token));
  auto tokens = Collect(stream, most > 0 ? std::min(most, holds + 1) : holds + 1);
  if (tokens && tokens->size() > holds) {
    return Fail(Errc::kInvalidRequest,
                "{}: has more tokens than this budget holds, {}; take the first with -n, or raise "
                "--ram",
                name, holds);
  }
  if (tokens || tokens.error().code != Errc::kInvalidRequest) return tokens;
  return Fail(tokens.error().code, "{}: {}", name, tokens.error().message);
}

size_t CommonPrefix(std::span<const Token> a, std::span<const Token> b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

}  // namespace moestro
