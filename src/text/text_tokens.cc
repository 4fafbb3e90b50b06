// SPDX-License-Identifier: MIT
#include "text/text_tokens.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>

#include "base/number.h"
#include "base/system_limits.h"
#include "base/text.h"

namespace moestro {
namespace {

// Holds back the last two bytes until the end of the file: they may be the final line break.
class FileText {
 public:
  FileText(std::FILE* file, std::string name) : file_(file), name_(std::move(name)) {}

  Result<std::string> Read(size_t most) {
    std::string text = std::exchange(held_, {});
    while (!ended_ && text.size() < most + kHeld) {
      const size_t before = text.size();
      text.resize(most + kHeld);
      const size_t got = std::fread(text.data() + before, 1, text.size() - before, file_);
      text.resize(before + got);
      ended_ = got == 0;
    }
    if (std::ferror(file_) != 0) {
      return Fail(Errc::kIo, "cannot read {}: {}", name_, std::strerror(errno));
    }
    if (ended_ && !std::exchange(stripped_, true)) {
      if (text.ends_with('\n')) text.pop_back();
      if (text.ends_with('\r')) text.pop_back();
    }
    const size_t given = std::min(most, text.size());
    held_ = text.substr(given);
    text.resize(given);
    return text;
  }

 private:
  static constexpr size_t kHeld = 2;

  std::FILE* file_;
  std::string name_;
  std::string held_;
  bool ended_ = false;
  bool stripped_ = false;
};

}  // namespace

Result<TextSource> OpenText(const std::string& path) {
  const std::shared_ptr<std::FILE> file(std::fopen(path.c_str(), "rbe"), [](std::FILE* f) {
    if (f != nullptr) std::fclose(f);
  });
  if (!file) return Fail(Errc::kIo, "cannot open {}: {}", path, std::strerror(errno));
  return [file, text = FileText(file.get(), path)](size_t most) mutable { return text.Read(most); };
}

TextSource StandardInput() {
  return
      [text = FileText(stdin, "standard input")](size_t most) mutable { return text.Read(most); };
}

Result<std::string> ReadSmallText(const std::string& path) {
  constexpr size_t kMostBytes = kMiB;
  TRY(const TextSource source, OpenText(path));
  TRY(std::string text, source(kMostBytes + 1));
  if (text.size() > kMostBytes) {
    return Fail(Errc::kInvalidRequest, "{}: over {}", path, FormatBytes(kMostBytes));
  }
  if (const size_t bad = FindInvalidUtf8(text); bad < text.size()) {
    return Fail(Errc::kInvalidRequest, "{}: not UTF-8 text at byte {}; convert it first", path,
                bad);
  }
  return text;
}

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
