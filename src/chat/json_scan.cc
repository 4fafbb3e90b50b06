// SPDX-License-Identifier: MIT
#include "chat/json_scan.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <utility>

#include "base/json.h"

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

namespace {

class MarkedScanner final : public SpelledScanner {
 public:
  MarkedScanner(std::string_view text, std::string_view mark)
      : SpelledScanner(text, "", ""), mark_(mark) {}

 private:
  enum class Expected : uint8_t { kObject, kValue, kValueOrEnd, kKey, kKeyOrEnd, kMore };

  Scan Next(char c) override {
    switch (expected_) {
      case Expected::kObject:
        return c == '{' ? Open(c, Expected::kKeyOrEnd) : Scan::kBroken;
      case Expected::kMore:
        if (c != ',') return Close(c);
        return Pass(", ", 1, open_.back() == '{' ? Expected::kKey : Expected::kValue);
      case Expected::kKeyOrEnd:
        return c == '}' ? Close(c) : ReadKey();
      case Expected::kKey:
        return ReadKey();
      case Expected::kValueOrEnd:
        return c == ']' ? Close(c) : ReadValue(c);
      case Expected::kValue:
        return ReadValue(c);
    }
    return Scan::kBroken;
  }

  // A key may be marked as strings are.
  Scan ReadKey() {
    if (rest().starts_with(mark_)) return ReadMarkedKey();
    if (mark_.starts_with(rest())) return Scan::kOpen;
    const size_t end = rest().find(':');
    const std::string_view key = rest().substr(0, end);
    if (!IsMarkedKey(key)) return Scan::kBroken;
    return end == std::string_view::npos ? Scan::kOpen : TakeKey(key, end + 1);
  }

  Scan ReadMarkedKey() {
    const std::string_view inner = rest().substr(mark_.size());
    const size_t end = inner.find(mark_);
    if (end == std::string_view::npos) return Scan::kOpen;
    const size_t colon = end + 2 * mark_.size();
    if (colon == rest().size()) return Scan::kOpen;
    if (rest()[colon] != ':') return Scan::kBroken;
    return TakeKey(inner.substr(0, end), colon + 1);
  }

  Scan TakeKey(std::string_view key, size_t length) {
    AppendText(key);
    return Pass(": ", length, Expected::kValue);
  }

  // Appends a JSON string.
  void AppendText(std::string_view text) {
    const auto is_plain = [](char c) { return c >= ' ' && c != '"' && c != '\\' && c < 0x7F; };
    if (!std::ranges::all_of(text, is_plain)) {
      json_ += Json(text).Dump();
      return;
    }
    json_ += '"';
    json_ += text;
    json_ += '"';
  }

  Scan ReadValue(char c) {
    if (c == '{') return Open(c, Expected::kKeyOrEnd);
    if (c == '[') return Open(c, Expected::kValueOrEnd);
    if (rest().starts_with(mark_)) return ReadString();
    if (mark_.starts_with(rest())) return Scan::kOpen;
    if (c == '"') return Scan::kBroken;
    for (const auto& [word, json] :
         {std::pair{"True", "true"}, {"False", "false"}, {"None", "null"}}) {
      const std::string_view other = word;
      if (rest().starts_with(other)) return Pass(json, other.size());
      if (other.starts_with(rest())) return Scan::kOpen;
    }
    const JsonScan scalar = ScanJson(rest());
    if (scalar.state != Scan::kWhole) return scalar.state;
    return Pass(rest().substr(0, scalar.length), scalar.length);
  }

  Scan ReadString() {
    const std::string_view inner = rest().substr(mark_.size());
    const size_t end = inner.find(mark_);
    if (end == std::string_view::npos) return Scan::kOpen;
    AppendText(inner.substr(0, end));
    return Pass({}, end + 2 * mark_.size());
  }

  Scan Pass(std::string_view json, size_t length, Expected next = Expected::kMore) {
    Add(json, length);
    expected_ = next;
    return Scan::kWhole;
  }

  Scan Open(char c, Expected next) {
    open_ += c;
    return Pass({&c, 1}, 1, next);
  }

  Scan Close(char c) {
    if (c != (open_.back() == '{' ? '}' : ']')) return Scan::kBroken;
    open_.pop_back();
    return Pass({&c, 1}, 1);
  }

  std::string_view mark_;
  Expected expected_ = Expected::kObject;
};

}  // namespace

bool IsMarkedKey(std::string_view key) {
  constexpr size_t kLongestKey = 512;  // bytes
  return !key.empty() && key.size() <= kLongestKey && !kBlanks.contains(key.front()) &&
         key.find_first_of(":,{}[]<>\"\t\r\n") == std::string_view::npos;
}

SpelledScan ScanMarked(std::string_view text, std::string_view mark) {
  return MarkedScanner(text, mark).Run();
}

}  // namespace moestro
