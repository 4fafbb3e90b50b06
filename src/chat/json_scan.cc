// SPDX-License-Identifier: MIT
#include "chat/json_scan.h"

#include <algorithm>
#include <cctype>
#include <string>

namespace moestro {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// A string from its opening quote on.
JsonScan ScanString(std::string_view text) {
  for (size_t i = 1; i < text.size(); ++i) {
    if (text[i] == '"') return {Scan::kWhole, i + 1};
    if (static_cast<unsigned char>(text[i]) < 0x20) return {Scan::kBroken, i};
    if (text[i] != '\\') continue;
    if (++i == text.size()) break;
    if (text[i] != 'u') {
      if (!std::string_view("\"\\/bfnrt").contains(text[i])) return {Scan::kBroken, i};
      continue;
    }
    for (int digit = 0; digit < 4; ++digit) {
      if (++i == text.size()) return {Scan::kOpen, text.size()};
      if (std::isxdigit(static_cast<unsigned char>(text[i])) == 0) return {Scan::kBroken, i};
    }
  }
  return {Scan::kOpen, text.size()};
}

size_t SkipDigits(std::string_view text, size_t i) {
  while (i < text.size() && IsDigit(text[i])) ++i;
  return i;
}

bool IsNumber(std::string_view text) {
  size_t i = text.starts_with('-') ? 1 : 0;
  const auto digits = [&] {
    const size_t begin = i;
    i = SkipDigits(text, i);
    return i > begin;
  };
  const size_t first = i;
  if (!digits() || (text[first] == '0' && i > first + 1)) return false;
  if (i < text.size() && text[i] == '.') {
    ++i;
    if (!digits()) return false;
  }
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    ++i;
    if (i < text.size() && (text[i] == '+' || text[i] == '-')) ++i;
    if (!digits()) return false;
  }
  return i == text.size();
}

// No byte of a number or a word counts until the whole is certain to be one.
JsonScan ScanNumber(std::string_view text) {
  const size_t end = text.find_first_not_of("+-.0123456789eE");
  if (end == std::string_view::npos) return {Scan::kOpen, 0};
  if (!IsNumber(text.substr(0, end))) return {Scan::kBroken, 0};
  return {Scan::kWhole, end};
}

JsonScan ScanWord(std::string_view text) {
  for (const std::string_view word : {"true", "false", "null"}) {
    if (text.starts_with(word)) return {Scan::kWhole, word.size()};
    if (word.starts_with(text)) return {Scan::kOpen, 0};
  }
  return {Scan::kBroken, 0};
}

JsonScan ScanScalar(std::string_view text) {
  if (text[0] == '"') return ScanString(text);
  if (text[0] == '-' || IsDigit(text[0])) return ScanNumber(text);
  return ScanWord(text);
}

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  JsonScan Run() {
    while (true) {
      at_ += CountBlanks(text_.substr(at_));
      if (at_ == text_.size()) return {Scan::kOpen, at_};
      const Scan state = Next(text_[at_]);
      if (state != Scan::kWhole) return {state, at_};
      if (open_.empty() && expected_ == Expected::kMore) return {Scan::kWhole, at_};
    }
  }

 private:
  enum class Expected : uint8_t { kValue, kValueOrEnd, kKey, kKeyOrEnd, kColon, kMore };

  // Reads one part; kWhole: go on.
  Scan Next(char c) {
    switch (expected_) {
      case Expected::kColon:
        return c == ':' ? Step(Expected::kValue) : Scan::kBroken;
      case Expected::kMore:
        if (c == ',') return Step(open_.back() == '{' ? Expected::kKey : Expected::kValue);
        return Close(c);
      case Expected::kKey:
      case Expected::kKeyOrEnd:
        if (c == '"') return Take(ScanString(text_.substr(at_)), Expected::kColon);
        return expected_ == Expected::kKeyOrEnd ? Close(c) : Scan::kBroken;
      case Expected::kValue:
      case Expected::kValueOrEnd:
        if (c == '{') return Open(c, Expected::kKeyOrEnd);
        if (c == '[') return Open(c, Expected::kValueOrEnd);
        if (c == ']' && expected_ == Expected::kValueOrEnd) return Close(c);
        return Take(ScanScalar(text_.substr(at_)), Expected::kMore);
    }
    return Scan::kBroken;
  }

  Scan Step(Expected next) {
    ++at_;
    expected_ = next;
    return Scan::kWhole;
  }
  Scan Take(JsonScan part, Expected next) {
    at_ += part.length;
    expected_ = next;
    return part.state;
  }
  Scan Open(char c, Expected next) {
    open_ += c;
    return Step(next);
  }
  Scan Close(char c) {
    if (c != (open_.back() == '{' ? '}' : ']')) return Scan::kBroken;
    open_.pop_back();
    return Step(Expected::kMore);
  }

  std::string_view text_;
  size_t at_ = 0;
  std::string open_;
  Expected expected_ = Expected::kValue;
};

}  // namespace

JsonScan ScanJson(std::string_view text) { return Scanner(text).Run(); }

SpelledScan SpelledScanner::Run() {
  Scan state = Scan::kWhole;
  do {
    at_ += CountBlanks(rest());
    state = rest().empty() ? Scan::kOpen : Next(rest().front());
  } while (state == Scan::kWhole && !open_.empty());
  return {.state = state, .length = at_, .json = std::move(json_)};
}

size_t CountBlanks(std::string_view text) {
  return std::min(text.find_first_not_of(kBlanks), text.size());
}

}  // namespace moestro
