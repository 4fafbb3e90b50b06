// SPDX-License-Identifier: MIT
#include "jinja/characters.h"

#include <algorithm>
#include <charconv>
#include <clocale>
#include <cwctype>
#include <limits>
#include <system_error>

#include "base/text.h"

namespace moestro::jinja {
namespace {

// glibc's tables of letters, independent of the process's language; null where glibc has none: then
// letters beyond ASCII stay as they are.
class LetterTables {
 public:
  LetterTables() : locale_(newlocale(LC_CTYPE_MASK, "C.UTF-8", locale_t{})) {}
  LetterTables(const LetterTables&) = delete;
  LetterTables& operator=(const LetterTables&) = delete;
  ~LetterTables() {
    if (locale_ != locale_t{}) freelocale(locale_);
  }

  uint32_t Upper(uint32_t c) const {
    if (c < 0x80 || locale_ == locale_t{}) return c >= 'a' && c <= 'z' ? c - 32 : c;
    return static_cast<uint32_t>(towupper_l(c, locale_));
  }
  uint32_t Lower(uint32_t c) const {
    if (c < 0x80 || locale_ == locale_t{}) return c >= 'A' && c <= 'Z' ? c + 32 : c;
    return static_cast<uint32_t>(towlower_l(c, locale_));
  }
  bool IsLetter(uint32_t c) const {
    if (c < 0x80 || locale_ == locale_t{}) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    return iswalpha_l(c, locale_) != 0 && !IsOtherDigit(c);
  }
  // glibc counts digits of other scripts among the letters.
  bool IsOtherDigit(uint32_t c) const {
    if (c < 0x80 || locale_ == locale_t{}) return false;
    return Lower(c) == c && Upper(c) == c && iswalnum_l(c, locale_) != 0 &&
           std::ranges::any_of(kDigitZeros,
                               [c](uint32_t zero) { return c >= zero && c < zero + 10; });
  }
  bool IsPrintable(uint32_t c) const {
    const bool is_hidden = std::ranges::any_of(
        kHidden, [c](const Range& range) { return c >= range.first && c <= range.last; });
    return !is_hidden && !IsBlank(c) && (locale_ == locale_t{} || iswprint_l(c, locale_) != 0);
  }

 private:
  struct Range {
    uint32_t first;
    uint32_t last;
  };
  // Control and format characters, private ones, and those that are none.
  static constexpr Range kHidden[] = {
      {0x7F, 0xA0},       {0xAD, 0xAD},       {0x600, 0x605},     {0x61C, 0x61C},
      {0x6DD, 0x6DD},     {0x70F, 0x70F},     {0x890, 0x891},     {0x8E2, 0x8E2},
      {0x180E, 0x180E},   {0x200B, 0x200F},   {0x2028, 0x202E},   {0x2060, 0x206F},
      {0xD800, 0xF8FF},   {0xFEFF, 0xFEFF},   {0xFFF0, 0xFFFB},   {0xFFFE, 0xFFFF},
      {0x110BD, 0x110BD}, {0x110CD, 0x110CD}, {0x13430, 0x1343F}, {0x1BCA0, 0x1BCA3},
      {0x1D173, 0x1D17A}, {0xE0000, 0xE00FF}, {0xE01F0, 0x10FFFF}};
  static constexpr uint32_t kDigitZeros[] = {0x0660, 0x06F0, 0x07C0, 0x0966, 0x09E6, 0x0A66,
                                             0x0AE6, 0x0B66, 0x0BE6, 0x0C66, 0x0CE6, 0x0D66,
                                             0x0E50, 0x0ED0, 0x0F20, 0xFF10};
  locale_t locale_;
};

const LetterTables& Letters() {
  static const LetterTables tables;
  return tables;
}

constexpr uint32_t kSharpS = 0xDF;

void AppendUpper(std::string& to, uint32_t c) {
  if (c == kSharpS) {
    to += "SS";
  } else {
    AppendCharacter(to, Letters().Upper(c));
  }
}

template <class Change>
std::string Changed(std::string_view text, Change change) {
  std::string changed;
  changed.reserve(text.size());
  while (!text.empty()) {
    const Character c = FirstCharacter(text);
    // A byte that begins no character stays.
    if (c.bytes == 1 && c.code_point >= 0x80) {
      changed += text.front();
    } else {
      change(changed, c.code_point);
    }
    text.remove_prefix(c.bytes);
  }
  return changed;
}

bool BeginsWord(uint32_t before) {
  return before == '-' || before == '(' || before == '{' || before == '[' || before == '<' ||
         IsBlank(before);
}

bool EndsLine(uint32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

}  // namespace

Character FirstCharacter(std::string_view text) {
  const Utf8Sequence sequence = ReadUtf8(text);
  const auto first = static_cast<unsigned char>(text.front());
  if (!sequence.is_valid || sequence.length == 1) return {.code_point = first, .bytes = 1};
  uint32_t code = first & (0xFFU >> (sequence.length + 1));
  for (size_t i = 1; i < sequence.length; ++i) {
    code = (code << 6U) | (static_cast<unsigned char>(text[i]) & 0x3FU);
  }
  return {.code_point = code, .bytes = sequence.length};
}

void AppendCharacter(std::string& text, uint32_t code_point) {
  const auto add = [&text](uint32_t byte) { text += static_cast<char>(byte); };
  if (code_point < 0x80) return add(code_point);
  if (code_point < 0x800) {
    add(0xC0U | (code_point >> 6U));
  } else {
    if (code_point < 0x10000) {
      add(0xE0U | (code_point >> 12U));
    } else {
      add(0xF0U | (code_point >> 18U));
      add(0x80U | ((code_point >> 12U) & 0x3FU));
    }
    add(0x80U | ((code_point >> 6U) & 0x3FU));
  }
  add(0x80U | (code_point & 0x3FU));
}

size_t CountCharacters(std::string_view text) {
  size_t n = 0;
  for (; !text.empty(); text.remove_prefix(FirstCharacter(text).bytes)) ++n;
  return n;
}

std::vector<std::string_view> SplitCharacters(std::string_view text) {
  std::vector<std::string_view> characters;
  while (!text.empty()) {
    const size_t bytes = FirstCharacter(text).bytes;
    characters.push_back(text.substr(0, bytes));
    text.remove_prefix(bytes);
  }
  return characters;
}

size_t ByteOf(std::string_view text, size_t character) {
  size_t at = 0;
  for (; character > 0 && at < text.size(); --character)
    at += FirstCharacter(text.substr(at)).bytes;
  return at;
}

std::string Upper(std::string_view text) {
  return Changed(text, [](std::string& to, uint32_t c) { AppendUpper(to, c); });
}

std::string Lower(std::string_view text) {
  return Changed(text,
                 [](std::string& to, uint32_t c) { AppendCharacter(to, Letters().Lower(c)); });
}

std::string Capitalize(std::string_view text) {
  bool is_first = true;
  return Changed(text, [&is_first](std::string& to, uint32_t c) {
    if (is_first && c == kSharpS) {
      to += "Ss";
    } else {
      AppendCharacter(to, is_first ? Letters().Upper(c) : Letters().Lower(c));
    }
    is_first = false;
  });
}

std::string SwapCase(std::string_view text) {
  return Changed(text, [](std::string& to, uint32_t c) {
    if (IsLowerCase(c)) return AppendUpper(to, c);
    AppendCharacter(to, Letters().Lower(c));
  });
}

std::string TitleOfLetters(std::string_view text) {
  bool is_behind_letter = false;
  return Changed(text, [&is_behind_letter](std::string& to, uint32_t c) {
    AppendCharacter(to, is_behind_letter ? Letters().Lower(c) : Letters().Upper(c));
    is_behind_letter = IsLetter(c);
  });
}

std::string TitleOfWords(std::string_view text) {
  bool is_first = true;
  return Changed(text, [&is_first](std::string& to, uint32_t c) {
    AppendCharacter(to, is_first ? Letters().Upper(c) : Letters().Lower(c));
    is_first = BeginsWord(c);
  });
}

bool IsBlank(uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

bool IsLetter(uint32_t c) { return Letters().IsLetter(c); }

bool IsDigit(uint32_t c) { return (c >= '0' && c <= '9') || Letters().IsOtherDigit(c); }

bool IsUpperCase(uint32_t c) { return Letters().Lower(c) != c; }

bool IsLowerCase(uint32_t c) { return c == kSharpS || Letters().Upper(c) != c; }

bool IsPrintable(uint32_t c) {
  if (c < 0x7F) return c >= 0x20;
  return Letters().IsPrintable(c);
}

std::string_view Strip(std::string_view text, bool from_left, bool from_right) {
  while (from_left && !text.empty()) {
    const Character c = FirstCharacter(text);
    if (!IsBlank(c.code_point) || (c.bytes == 1 && c.code_point >= 0x80)) break;
    text.remove_prefix(c.bytes);
  }
  while (from_right && !text.empty()) {
    size_t begin = text.size() - 1;
    while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0U) == 0x80U) --begin;
    const Character c = FirstCharacter(text.substr(begin));
    if (begin + c.bytes != text.size() || !IsBlank(c.code_point) ||
        (c.bytes == 1 && c.code_point >= 0x80))
      break;
    text.remove_suffix(c.bytes);
  }
  return text;
}

std::string_view StripSet(std::string_view text, std::string_view set, bool from_left,
                          bool from_right) {
  const std::vector<std::string_view> members = SplitCharacters(set);
  bool goes_on = from_left;
  while (goes_on) {
    goes_on = false;
    for (const std::string_view c : members) {
      if (!text.starts_with(c)) continue;
      text.remove_prefix(c.size());
      goes_on = true;
    }
  }
  goes_on = from_right;
  while (goes_on) {
    goes_on = false;
    for (const std::string_view c : members) {
      if (!text.ends_with(c)) continue;
      text.remove_suffix(c.size());
      goes_on = true;
    }
  }
  return text;
}

std::optional<double> RealOfDigits(std::string_view digits) {
  double value = 0.0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (read.ec == std::errc::invalid_argument || read.ptr != digits.data() + digits.size()) {
    return std::nullopt;
  }
  if (read.ec == std::errc()) return value;
  const size_t power = digits.find_first_of("eE");
  const bool is_small = power != std::string_view::npos && digits.substr(power).contains('-');
  const double sign = digits.starts_with('-') ? -1.0 : 1.0;
  return sign * (is_small ? 0.0 : std::numeric_limits<double>::infinity());
}

std::vector<std::string_view> SplitLinesWithEnds(std::string_view text) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const Character c = FirstCharacter(text.substr(at));
    const bool is_byte = c.bytes == 1 && c.code_point >= 0x80;
    at += c.bytes;
    if (is_byte || !EndsLine(c.code_point)) continue;
    if (c.code_point == '\r' && text.substr(at).starts_with('\n')) ++at;
    lines.push_back(text.substr(begin, at - begin));
    begin = at;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::vector<std::string_view> SplitLines(std::string_view text) {
  std::vector<std::string_view> lines = SplitLinesWithEnds(text);
  for (std::string_view& line : lines) {
    if (line.ends_with("\r\n")) line.remove_suffix(1);
    size_t last = line.size() - 1;
    while (last > 0 && (static_cast<unsigned char>(line[last]) & 0xC0U) == 0x80U) --last;
    const Character c = FirstCharacter(line.substr(last));
    const bool is_end = last + c.bytes == line.size() && (c.bytes > 1 || c.code_point < 0x80);
    if (is_end && EndsLine(c.code_point)) line.remove_suffix(c.bytes);
  }
  return lines;
}

std::string EscapeHtml(std::string_view text) {
  std::string escaped;
  escaped.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&#34;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

}  // namespace moestro::jinja
