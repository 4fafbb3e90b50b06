// SPDX-License-Identifier: MIT
#include "chat/python_call.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <utility>

#include "base/json.h"
#include "base/utf8.h"

namespace moestro {
namespace {

bool IsNameLetter(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

void AppendUtf8(std::string& text, uint32_t c) {
  const auto add = [&text](uint32_t byte) { text += static_cast<char>(byte); };
  if (c < 0x80) return add(c);
  const auto follow = [&](int shift) { add(0x80U | (c >> shift & 0x3FU)); };
  if (c < 0x800) {
    add(0xC0U | c >> 6U);
  } else if (c < 0x10000) {
    add(0xE0U | c >> 12U);
    follow(6);
  } else {
    add(0xF0U | c >> 18U);
    follow(12);
    follow(6);
  }
  follow(0);
}

// The value of hexadecimal digits in \x, \u or \U; nullopt: other characters.
std::optional<uint32_t> HexOf(std::string_view digits, size_t count) {
  if (digits.size() < count) return std::nullopt;
  uint32_t value = 0;
  const char* const end = digits.data() + count;
  const auto [stopped, error] = std::from_chars(digits.data(), end, value, 16);
  return error == std::errc() && stopped == end ? std::optional(value) : std::nullopt;
}

// Replaces the escapes of Python and of JSON in a string. nullopt: no text.
std::optional<std::string> Unescape(std::string_view inner) {
  constexpr std::string_view kLetters = "ntrbf0av";
  constexpr std::string_view kMeanings("\n\t\r\b\f\0\a\v", 8);
  std::string text;
  for (size_t i = 0; i < inner.size(); ++i) {
    if (inner[i] != '\\' || i + 1 == inner.size()) {
      text += inner[i];
      continue;
    }
    const char c = inner[++i];
    const size_t n_digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (n_digits > 0) {
      auto value = HexOf(inner.substr(i + 1), n_digits);
      if (!value) return std::nullopt;
      i += n_digits;
      // a character as two surrogates, as in JSON
      const bool is_half = *value >= 0xD800 && *value < 0xDC00 && inner.substr(i + 1, 2) == "\\u";
      if (is_half) {
        const auto low = HexOf(inner.substr(i + 3), 4);
        if (!low || *low < 0xDC00 || *low > 0xDFFF) return std::nullopt;
        value = 0x10000 + ((*value - 0xD800) << 10U) + (*low - 0xDC00);
        i += 6;
      }
      if (*value > 0x10FFFF || (*value >= 0xD800 && *value <= 0xDFFF)) return std::nullopt;
      AppendUtf8(text, *value);
      continue;
    }
    if (c == '\n') continue;
    const size_t letter = kLetters.find(c);
    if (letter != std::string_view::npos) {
      text += kMeanings[letter];
    } else if (c == '\'' || c == '"' || c == '\\' || c == '/') {
      text += c;
    } else {  // no escape: Python keeps both
      text += '\\';
      text += c;
    }
  }
  return text;
}

class PythonScanner final : public SpelledScanner {
 public:
  explicit PythonScanner(std::string_view text) : SpelledScanner(text, "{", "(") {}

 private:
  enum class Expected : uint8_t { kKey, kKeyOrEnd, kColon, kValue, kValueOrEnd, kMore };

  Scan Next(char c) override {
    switch (expected_) {
      case Expected::kKeyOrEnd:
        if (c == Closing()) return Close();
        return ReadKey(c);
      case Expected::kKey:
        return ReadKey(c);
      case Expected::kColon:
        if (c != ':') return Scan::kBroken;
        return Pass(": ", 1, Expected::kValue);
      case Expected::kValueOrEnd:
        if (c == Closing()) return Close();
        return ReadValue(c);
      case Expected::kValue:
        return ReadValue(c);
      case Expected::kMore:
        if (c == Closing()) return Close();
        if (c != ',') return Scan::kBroken;
        return ReadComma();
    }
    return Scan::kBroken;
  }

  // Reads a comma and writes it with the next value, since Python allows a comma before the end and
  // JSON does not.
  Scan ReadComma() {
    const std::string_view behind = rest().substr(1);
    const std::string_view next = behind.substr(CountBlanks(behind));
    if (next.empty()) return Scan::kOpen;
    if (next.front() == Closing()) return Pass({}, 1, Expected::kMore);
    const bool has_keys = open_.back() == '{' || at_depth_one();
    return Pass(", ", 1, has_keys ? Expected::kKey : Expected::kValue);
  }

  bool at_depth_one() const { return open_.size() == 1; }
  char Closing() const {
    const char open = open_.back();
    return open == '{' ? '}' : open == '[' ? ']' : ')';
  }

  Scan ReadKey(char c) {
    if (!at_depth_one()) {
      if (c != '"' && c != '\'') return Scan::kBroken;
      const Scan state = ReadString(c);
      if (state == Scan::kWhole) expected_ = Expected::kColon;
      return state;
    }
    size_t end = 0;
    while (end < rest().size() && IsNameLetter(rest()[end])) ++end;
    const std::string_view behind = rest().substr(end);
    const size_t blanks = CountBlanks(behind);
    if (end == 0 || end > kLongestName) return Scan::kBroken;
    if (blanks == behind.size()) return Scan::kOpen;
    const std::string_view name = rest().substr(0, end);
    if (behind[blanks] != '=' || !IsPythonName(name)) return Scan::kBroken;
    return Pass(Json(name).Dump() + ": ", end + blanks + 1, Expected::kValue);
  }

  Scan ReadValue(char c) {
    if (c == '{') return Open(c, "{", Expected::kKeyOrEnd);
    if (c == '[' || c == '(') return Open(c, "[", Expected::kValueOrEnd);
    if (c == '"' || c == '\'') return ReadString(c);
    for (const auto& [word, json] : {std::pair{"True", "true"},
                                     {"False", "false"},
                                     {"None", "null"},
                                     {"true", "true"},
                                     {"false", "false"},
                                     {"null", "null"}}) {
      const std::string_view whole = word;
      if (whole.starts_with(rest()) && rest().size() < whole.size()) return Scan::kOpen;
      if (!rest().starts_with(whole)) continue;
      if (rest().size() == whole.size()) return Scan::kOpen;
      if (IsNameLetter(rest()[whole.size()])) return Scan::kBroken;
      return Pass(json, whole.size());
    }
    const JsonScan number = ScanJson(rest());
    if (number.state != Scan::kWhole) return number.state;
    return Pass(rest().substr(0, number.length), number.length);
  }

  // Between one quote of either kind, or three.
  Scan ReadString(char quote) {
    const std::string three(3, quote);
    const bool may_be_three = rest().size() < 3 && std::string_view(three).starts_with(rest());
    if (may_be_three) return Scan::kOpen;
    const size_t n_quotes = rest().starts_with(three) ? 3 : 1;
    const std::string_view mark = std::string_view(three).substr(0, n_quotes);
    size_t end = n_quotes;
    while (end < rest().size() && !rest().substr(end).starts_with(mark)) {
      end += rest()[end] == '\\' ? 2 : 1;
    }
    // one or two of three closing quotes may have come
    if (end + n_quotes > rest().size()) return Scan::kOpen;
    const auto text = Unescape(rest().substr(n_quotes, end - n_quotes));
    if (!text || FindInvalidUtf8(*text) < text->size()) return Scan::kBroken;
    return Pass(Json(*text).Dump(), end + n_quotes);
  }

  Scan Pass(std::string_view json, size_t length, Expected next = Expected::kMore) {
    Add(json, length);
    expected_ = next;
    return Scan::kWhole;
  }
  Scan Open(char c, std::string_view json, Expected next) {
    open_ += c;
    return Pass(json, 1, next);
  }
  Scan Close() {
    const bool is_object = at_depth_one() || open_.back() == '{';
    open_.pop_back();
    return Pass(is_object ? "}" : "]", 1);
  }

  static constexpr size_t kLongestName = 256;

  Expected expected_ = Expected::kKeyOrEnd;
};

}  // namespace

bool IsPythonName(std::string_view name) {
  return !name.empty() && std::isdigit(static_cast<unsigned char>(name.front())) == 0 &&
         std::ranges::all_of(name, IsNameLetter);
}

SpelledScan ScanPythonArguments(std::string_view text) { return PythonScanner(text).Run(); }

}  // namespace moestro
