// SPDX-License-Identifier: MIT
#include "chat/argument_scan.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/text.h"

namespace moestro {
namespace {

constexpr std::string_view kItem = "item";
constexpr size_t kLongestKey = 256;

class NestedScanner {
 public:
  NestedScanner(const CallStyle& style, std::string_view text, const NestedText& text_of)
      : style_(style),
        mark_(style.key_begin.substr(0, style.key_begin.size() - 1)),
        text_(text),
        text_of_(text_of) {}

  SpelledScan Run() {
    Scan state = Scan::kWhole;
    while (state == Scan::kWhole && !is_over_) state = open_.empty() ? ReadTop() : ReadInside();
    json_.resize(certain_bytes_);
    return {.state = state, .length = at_, .json = std::move(json_)};
  }

 private:
  struct Tag {
    std::string_view key;
    size_t value_at = 0;  // where the JSON of the value begins
    size_t n_parts = 0;
    size_t n_items = 0;
  };

  std::string_view rest() const { return text_.substr(at_); }

  Scan ReadTop() {
    at_ += CountBlanks(rest());
    if (rest().starts_with(style_.call_end)) {
      at_ += style_.call_end.size();
      json_ += "}";
      certain_bytes_ = json_.size();
      is_over_ = true;
      return Scan::kWhole;
    }
    if (style_.call_end.starts_with(rest()) || style_.key_begin.starts_with(rest())) {
      return Scan::kOpen;
    }
    return ReadOpening();
  }

  Scan ReadOpening() {
    if (!rest().starts_with(style_.key_begin)) return Scan::kBroken;
    std::string_view key;
    const Scan state = ReadKey(style_.key_begin.size(), key);
    if (state != Scan::kWhole) return state;
    BeginPart(key);
    open_.push_back({.key = key, .value_at = json_.size()});
    return Scan::kWhole;
  }

  // Reads a key from `begin` on and the end of its tag.
  Scan ReadKey(size_t begin, std::string_view& key) {
    const std::string_view head = rest().substr(begin, kLongestKey + style_.key_end.size());
    const size_t end = head.find(style_.key_end);
    if (end == std::string_view::npos) {
      return head.size() < kLongestKey ? Scan::kOpen : Scan::kBroken;
    }
    key = head.substr(0, end);
    if (key.empty() || key.find_first_of("<>/\"\r\n") != std::string_view::npos) {
      return Scan::kBroken;
    }
    at_ += begin + end + style_.key_end.size();
    return Scan::kWhole;
  }

  // Reads the text up to the next tag, which closes the open one or opens one inside.
  Scan ReadInside() {
    const size_t found = rest().find(mark_);
    if (found == std::string_view::npos) return Scan::kOpen;
    const std::string_view text = rest().substr(0, found);
    const std::string_view behind = rest().substr(found);
    if (behind.starts_with(style_.value_end)) return ReadClosing(text, found);
    if (style_.value_end.starts_with(behind)) return Scan::kOpen;
    if (CountBlanks(text) < text.size()) return Scan::kBroken;
    at_ += found;
    return ReadOpening();
  }

  Scan ReadClosing(std::string_view text, size_t found) {
    std::string_view key;
    const Scan state = ReadKey(found + style_.value_end.size(), key);
    if (state != Scan::kWhole) return state;
    if (key != open_.back().key) return Scan::kBroken;
    const Tag tag = open_.back();
    open_.pop_back();
    if (tag.n_parts == 0) {
      json_ += text_of_(open_.empty() ? std::optional(tag.key) : std::nullopt, text);
    } else {
      const bool is_list = tag.n_items == tag.n_parts;
      if (!is_list && tag.n_items > 0) return Scan::kBroken;
      json_[tag.value_at] = is_list ? '[' : '{';
      json_ += is_list ? ']' : '}';
    }
    if (open_.empty()) certain_bytes_ = json_.size();
    return Scan::kWhole;
  }

  // Writes the text before a tag's value. The bracket of the tag around the value is known when
  // that tag is closed.
  void BeginPart(std::string_view key) {
    const bool is_parameter = open_.empty();
    const bool is_first = is_parameter ? json_.size() == 1 : open_.back().n_parts == 0;
    if (is_first && !is_parameter) json_ += '{';
    if (!is_first) json_ += ", ";
    if (is_parameter || key != kItem) json_ += Json(key).Dump() + ": ";
    if (is_parameter) return;
    ++open_.back().n_parts;
    if (key == kItem) ++open_.back().n_items;
  }

  const CallStyle& style_;
  std::string_view mark_;  // beginning of every tag
  std::string_view text_;
  const NestedText& text_of_;
  size_t at_ = 0;
  std::string json_ = "{";
  size_t certain_bytes_ = 1;
  std::vector<Tag> open_;
  bool is_over_ = false;
};

}  // namespace

SpelledScan ScanNested(const CallStyle& style, std::string_view text, const NestedText& text_of) {
  return NestedScanner(style, text, text_of).Run();
}

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
