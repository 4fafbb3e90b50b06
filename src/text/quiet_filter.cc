// SPDX-License-Identifier: MIT
#include "text/quiet_filter.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace moestro {
namespace {

constexpr std::string_view kBlankCharacters = " \t\r\n";

// Keeps the end of the text that may be the beginning of `mark`.
void KeepTail(std::string& text, std::string_view mark) {
  if (text.size() >= mark.size()) text.erase(0, text.size() - mark.size() + 1);
}

}  // namespace

QuietWatch::QuietWatch(QuietText marks) : marks_(std::move(marks)) { Restart(); }

void QuietWatch::Restart() {
  tail_.clear();
  place_ = marks_.is_open ? Place::kQuiet : Place::kStart;
  if (marks_.end.empty()) place_ = Place::kLoud;
}

bool QuietWatch::Push(std::string_view text) {
  bool is_loud = place_ != Place::kQuiet;
  if (place_ == Place::kLoud) return true;
  tail_ += text;
  if (place_ == Place::kStart) FindBegin();
  while (place_ == Place::kQuiet && FindEnd()) {
    is_loud = true;
    if (place_ == Place::kStart) FindBegin();
  }
  return is_loud;
}

// True: the quiet part has ended.
bool QuietWatch::FindEnd() {
  const size_t found = tail_.find(marks_.end);
  if (found == std::string::npos) {
    KeepTail(tail_, marks_.end);
    return false;
  }
  tail_.erase(0, found + marks_.end.size());
  place_ = marks_.is_anywhere ? Place::kStart : Place::kLoud;
  return true;
}

void QuietWatch::FindBegin() {
  size_t at = tail_.find(marks_.begin);
  if (!marks_.is_anywhere) {
    tail_.erase(0, std::min(tail_.find_first_not_of(kBlankCharacters), tail_.size()));
    if (!tail_.starts_with(marks_.begin)) {
      if (!std::string_view(marks_.begin).starts_with(tail_)) place_ = Place::kLoud;
      return;
    }
    at = 0;
  }
  if (at == std::string::npos) return KeepTail(tail_, marks_.begin);
  tail_.erase(0, at + marks_.begin.size());
  place_ = Place::kQuiet;
}

QuietFilter::QuietFilter(std::unique_ptr<TokenFilter> filter, QuietText marks, const Vocab& vocab)
    : filter_(std::move(filter)), watch_(std::move(marks)), vocab_(vocab) {}

Result<bool> QuietFilter::Take(Token token) {
  QuietWatch next = watch_;
  // The filter also gets the token that ends a quiet part: a text that starts the grammar may begin
  // in that token.
  if (next.Push(vocab_.Spelling(token))) {
    TRY(const bool is_taken, filter_->Take(token));
    if (!is_taken) return false;
  }
  watch_ = std::move(next);
  return true;
}

// Called only after the filter has refused a token, which cannot happen in a quiet part.
Result<std::vector<bool>> QuietFilter::Allowed(uint32_t n_tokens) {
  return filter_->Allowed(n_tokens);
}

void QuietFilter::Restart() {
  watch_.Restart();
  filter_->Restart();
}

}  // namespace moestro
