// SPDX-License-Identifier: MIT
#include "model/token_stream.h"

#include <algorithm>
#include <utility>

#include "base/number.h"
#include "base/text.h"

namespace moestro {

TextSource FromText(std::string_view text) {
  return [text](size_t most) mutable -> Result<std::string> {
    std::string next(text.substr(0, most));
    text.remove_prefix(next.size());
    return next;
  };
}

TokenStream::TokenStream(const Vocab& vocab, TextSource source, const Options& options)
    : vocab_(vocab), source_(std::move(source)), options_(options) {}

Result<std::vector<Token>> TokenStream::Next() {
  std::vector<Token> tokens;
  while (tokens.empty() && !finished_) {
    TRY(const size_t bytes, FindPieceEnd());
    finished_ = bytes == 0;
    if (!finished_) {
      TRY(tokens, Take(bytes));
    }
    if (options_.add_special) AddSpecial(tokens);
  }
  return tokens;
}

// Adds the tokens that begin and end the text. A text without tokens begins when it is finished.
void TokenStream::AddSpecial(std::vector<Token>& tokens) {
  last_.append_range(tokens);
  const size_t kept = std::min(last_.size(), vocab_.end_tokens().size());
  last_.erase(last_.begin(), last_.end() - static_cast<std::ptrdiff_t>(kept));
  if (!began_ && (finished_ || !tokens.empty())) {
    began_ = true;
    adds_end_ = !vocab_.is_complete(tokens);
    if (adds_end_) tokens.insert_range(tokens.begin(), vocab_.begin_tokens());
  }
  if (finished_ && adds_end_) tokens.append_range(vocab_.MissingEnd(last_));
}

// Reads until text_ has `bytes` or the source ends.
Status TokenStream::Fill(size_t bytes) {
  while (!ended_ && text_.size() < bytes) {
    TRY(const std::string more, source_(bytes - text_.size()));
    ended_ = more.empty();
    text_ += more;
  }
  return {};
}

// 0: nothing is left.
Result<size_t> TokenStream::FindPieceEnd() {
  const TextCutter& cutter = vocab_.cutter();
  size_t searched = 0;
  for (size_t last = options_.piece_bytes;; last *= 2) {
    last = std::min(last, options_.longest_piece_bytes);
    TRY_STATUS(Fill(last + cutter.reach() + 1));
    if (text_.size() <= last) return text_.size();
    if (const size_t cut = cutter.LastCut(text_, searched, last); cut > 0) return cut;
    if (last == options_.longest_piece_bytes) break;
    searched = last;
  }
  return Fail(Errc::kInvalidRequest,
              "the text has no place to cut within {} from byte {} on, and more cannot be "
              "tokenized at once in this memory; break its lines, or raise --ram",
              FormatBytes(options_.longest_piece_bytes), done_);
}

Result<std::vector<Token>> TokenStream::Take(size_t bytes) {
  if (const size_t bad = FindInvalidUtf8({text_.data(), bytes}); bad < bytes) {
    return Fail(Errc::kInvalidRequest,
                "the text is not valid UTF-8 at byte {}; convert it to UTF-8", done_ + bad);
  }
  TRY(std::vector<Token> tokens,
      vocab_.Tokenize(before_ + text_.substr(0, bytes), false, options_.parse_special));
  tokens.erase(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(drop_));
  if (vocab_.spaces_before_text()) {
    size_t begin = bytes - 1;
    while (begin > 0 && (static_cast<unsigned char>(text_[begin]) & 0xC0U) == 0x80U) --begin;
    before_ = text_.substr(begin, bytes - begin);
    TRY(const std::vector<Token> alone, vocab_.Tokenize(before_, false, options_.parse_special));
    drop_ = alone.size();
  }
  text_.erase(0, bytes);
  done_ += bytes;
  return tokens;
}

Result<std::vector<Token>> Collect(TokenStream& stream, uint64_t most) {
  std::vector<Token> all;
  while (all.size() < most) {
    TRY(const std::vector<Token> tokens, stream.Next());
    if (tokens.empty()) break;
    const auto room = std::min<uint64_t>(tokens.size(), most - all.size());
    all.insert(all.end(), tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(room));
  }
  return all;
}

}  // namespace moestro
