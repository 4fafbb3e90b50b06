// SPDX-License-Identifier: MIT
#include "jinja/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "jinja/characters.h"
#include "jinja/failure.h"

namespace moestro::jinja {
namespace {

constexpr std::array<std::string_view, 26> kOperators{
    "**", "//", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
    "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

bool IsAsciiDigit(char c) { return c >= '0' && c <= '9'; }

// Letters, digits, "_" and whatever is beyond ASCII.
bool IsNameByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || IsAsciiDigit(c) || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

// Line ends are "\n", and one at the end of the template is left out.
std::string NormalLines(std::string_view text) {
  std::string lines;
  lines.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r') {
      lines += '\n';
      if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
    } else {
      lines += text[i];
    }
  }
  if (lines.ends_with('\n')) lines.pop_back();
  return lines;
}

// Reads Python's escapes in a text literal; an unknown escape stays as it is.
class EscapeReader {
 public:
  explicit EscapeReader(std::string_view literal) : left_(literal) {}

  std::string Read() {
    while (!left_.empty()) {
      if (left_.front() != '\\' || left_.size() == 1) {
        text_ += left_.front();
        left_.remove_prefix(1);
        continue;
      }
      const char escape = left_[1];
      left_.remove_prefix(2);
      ReadEscape(escape);
    }
    return std::move(text_);
  }

 private:
  void ReadEscape(char escape) {
    constexpr std::string_view kLetters = "ntrabfv0\\'\"";
    constexpr std::string_view kMeanings("\n\t\r\a\b\f\v\0\\'\"", 11);
    if (escape == '\n') return;
    if (escape == 'x') return ReadNumber(2, 16, "\\x");
    if (escape == 'u') return ReadNumber(4, 16, "\\u");
    if (escape == 'U') return ReadNumber(8, 16, "\\U");
    if (escape == 'N') {
      throw Failure(Failure::Kind::kSyntax,
                    "characters are not known by their names (\\N{...}): write the character, or "
                    "its number behind \\u");
    }
    if (escape >= '0' && escape <= '7') return ReadOctal(escape);
    if (const size_t at = kLetters.find(escape); at != std::string_view::npos) {
      text_ += kMeanings[at];
      return;
    }
    text_ += '\\';
    text_ += escape;
  }
  void ReadOctal(char first) {
    uint32_t code = static_cast<uint32_t>(first - '0');
    for (int i = 0; i < 2 && !left_.empty() && left_.front() >= '0' && left_.front() <= '7'; ++i) {
      code = code * 8 + static_cast<uint32_t>(left_.front() - '0');
      left_.remove_prefix(1);
    }
    AppendCharacter(text_, code);
  }
  std::optional<uint32_t> Digits(std::string_view from, size_t digits, int base) const {
    uint32_t code = 0;
    if (from.size() < digits) return std::nullopt;
    const auto read = std::from_chars(from.data(), from.data() + digits, code, base);
    if (read.ec != std::errc() || read.ptr != from.data() + digits) return std::nullopt;
    return code;
  }
  void ReadNumber(size_t digits, int base, std::string_view name) {
    constexpr uint32_t kReplacement = 0xFFFD;
    const auto code = Digits(left_, digits, base);
    if (!code || *code > 0x10FFFF) {
      throw Failure(Failure::Kind::kSyntax, Format("a broken {} escape in a text", name));
    }
    left_.remove_prefix(digits);
    if (*code < 0xD800 || *code > 0xDFFF) return AppendCharacter(text_, *code);
    // a character beyond 16 bits as two surrogates, as in JSON
    if (*code < 0xDC00 && left_.starts_with("\\u")) {
      const auto low = Digits(left_.substr(2), 4, 16);
      if (low && *low >= 0xDC00 && *low <= 0xDFFF) {
        left_.remove_prefix(6);
        return AppendCharacter(text_, 0x10000 + ((*code - 0xD800) << 10U) + (*low - 0xDC00));
      }
    }
    AppendCharacter(text_, kReplacement);
  }

  std::string_view left_;
  std::string text_;
};

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  std::vector<Token> Run() {
    while (at_ < text_.size()) ReadOutside();
    Add(Token::Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void Fail(std::string words) const {
    throw Failure(Failure::Kind::kSyntax, std::move(words), line_);
  }
  std::string_view rest() const { return text_.substr(at_); }
  void Add(Token::Kind kind, std::string_view text) {
    tokens_.push_back({.kind = kind, .text = std::string(text), .line = line_});
  }
  // Everything passes through here, so that lines are counted.
  void Advance(size_t bytes) {
    line_ += static_cast<uint32_t>(std::ranges::count(text_.substr(at_, bytes), '\n'));
    at_ += bytes;
  }
  void SkipBlanks() { Advance(rest().size() - Strip(rest(), true, false).size()); }
  void SkipLineEnd() {
    if (rest().starts_with('\n')) Advance(1);
  }

  // Text up to the next tag, and the tag.
  void ReadOutside() {
    size_t tag = at_;
    while (true) {
      tag = text_.find('{', tag);
      if (tag == std::string_view::npos || tag + 1 >= text_.size()) {
        Add(Token::Kind::kText, rest());
        return Advance(rest().size());
      }
      const char c = text_[tag + 1];
      if (c == '{' || c == '%' || c == '#') break;
      ++tag;
    }
    const char kind = text_[tag + 1];
    const char sign = tag + 2 < text_.size() ? text_[tag + 2] : '\0';
    AddText(text_.substr(at_, tag - at_), sign, kind != '{');
    Advance(tag + 2 - at_);
    if (sign == '-' || sign == '+') Advance(1);
    if (kind == '#') return ReadComment();
    if (kind == '%' && ReadRaw()) return;
    Add(kind == '%' ? Token::Kind::kBlockBegin : Token::Kind::kPrintBegin, "");
    ReadInside(kind == '%');
  }

  // The text before a tag. `sign` stands behind the tag's opening.
  void AddText(std::string_view text, char sign, bool strips_line) {
    if (sign == '-') {
      text = Strip(text, false, true);
    } else if (sign != '+' && strips_line) {
      const size_t line = text.rfind('\n');
      const bool is_line = line != std::string_view::npos || at_ == 0 || text_[at_ - 1] == '\n';
      const size_t begin = line == std::string_view::npos ? 0 : line + 1;
      if (is_line && Strip(text.substr(begin), true, false).empty()) text = text.substr(0, begin);
    }
    if (!text.empty()) Add(Token::Kind::kText, text);
  }

  void ReadComment() {
    const size_t end = rest().find("#}");
    if (end == std::string_view::npos) Fail("a comment without its end");
    const char sign = end > 0 ? rest()[end - 1] : '\0';
    Advance(end + 2);
    AfterBlock(sign);
  }
  // Skips blanks or a line end behind a block tag or a comment.
  void AfterBlock(char sign) {
    if (sign == '-') return SkipBlanks();
    if (sign != '+') SkipLineEnd();
  }

  // Behind "{%": reads a tag that is the word alone and returns the sign before its end; nullopt:
  // another tag.
  std::optional<char> ReadWordTag(std::string_view word) {
    std::string_view left = Strip(rest(), true, false);
    if (!left.starts_with(word)) return std::nullopt;
    left = Strip(left.substr(word.size()), true, false);
    char sign = '\0';
    if (left.starts_with('-') || left.starts_with('+')) {
      sign = left.front();
      left.remove_prefix(1);
    }
    if (!left.starts_with("%}")) return std::nullopt;
    Advance(rest().size() - left.size() + 2);
    return sign;
  }

  bool ReadRaw() {
    const auto sign = ReadWordTag("raw");
    if (!sign) return false;
    if (*sign == '-') SkipBlanks();
    for (size_t end = text_.find("{%", at_); end != std::string_view::npos;
         end = text_.find("{%", end + 1)) {
      const size_t begin = at_;
      const uint32_t line = line_;
      const char end_sign = end + 2 < text_.size() ? text_[end + 2] : '\0';
      Advance(end + 2 - at_);
      if (end_sign == '-' || end_sign == '+') Advance(1);
      const auto after = ReadWordTag("endraw");
      const size_t behind = at_;
      at_ = begin;
      if (after) {
        AddText(text_.substr(begin, end - begin), end_sign, true);
        at_ = behind;
        AfterBlock(*after);
        return true;
      }
      line_ = line;
    }
    Fail("a raw block without its end");
  }

  void ReadInside(bool is_block) {
    brackets_.clear();
    while (true) {
      SkipBlanks();
      if (at_ >= text_.size()) Fail("the template ends within a tag");
      if (brackets_.empty() && ReadEnd(is_block)) return;
      if (ReadNumber() || ReadName() || ReadString() || ReadOperator()) continue;
      Fail(Format("unexpected character '{}'", rest().substr(0, FirstCharacter(rest()).bytes)));
    }
  }

  bool ReadEnd(bool is_block) {
    const std::string_view end = is_block ? "%}" : "}}";
    const char sign = rest().front();
    const bool has_sign = sign == '-' || (sign == '+' && is_block);
    if (!rest().substr(has_sign ? 1 : 0).starts_with(end)) return false;
    Add(is_block ? Token::Kind::kBlockEnd : Token::Kind::kPrintEnd, end);
    Advance(end.size() + (has_sign ? 1 : 0));
    if (is_block) {
      AfterBlock(has_sign ? sign : '\0');
    } else if (has_sign) {
      SkipBlanks();
    }
    return true;
  }

  // Length of digits with "_" between them.
  static size_t DigitsAt(std::string_view text) {
    size_t n = 0;
    while (n < text.size() &&
           (IsAsciiDigit(text[n]) ||
            (n > 0 && text[n] == '_' && n + 1 < text.size() && IsAsciiDigit(text[n + 1]))))
      ++n;
    return n;
  }
  // The bytes of 0x1F, 0o17, 0b11, with "_" before digits; 0: the text begins with no such number.
  static size_t PrefixedAt(std::string_view text) {
    if (text.size() < 3 || text.front() != '0') return 0;
    const char kind = text[1];
    const std::string_view digits = kind == 'x' || kind == 'X'   ? "0123456789abcdefABCDEF"
                                    : kind == 'o' || kind == 'O' ? "01234567"
                                    : kind == 'b' || kind == 'B' ? "01"
                                                                 : "";
    size_t n = 2;
    while (n < text.size()) {
      const size_t digit = n + (text[n] == '_' ? 1 : 0);
      if (digit >= text.size() || !digits.contains(text[digit])) break;
      n = digit + 1;
    }
    return n > 2 ? n : 0;
  }
  void AddNumber(Token::Kind kind, size_t bytes) {
    std::string digits(rest().substr(0, bytes));
    std::erase(digits, '_');
    Add(kind, digits);
    Advance(bytes);
  }
  bool ReadNumber() {
    const std::string_view text = rest();
    const size_t whole = DigitsAt(text);
    if (whole == 0) return false;
    if (const size_t prefixed = PrefixedAt(text); prefixed > 0) {
      AddNumber(Token::Kind::kInteger, prefixed);
      return true;
    }
    // w.0.1 has two whole numbers.
    const bool is_behind_dot = at_ > 0 && text_[at_ - 1] == '.';
    size_t n = whole;
    if (!is_behind_dot && text.substr(n).starts_with('.')) {
      const size_t fraction = DigitsAt(text.substr(n + 1));
      if (fraction > 0) n += 1 + fraction;
    }
    if (!is_behind_dot && n < text.size() && (text[n] == 'e' || text[n] == 'E')) {
      size_t power = n + 1;
      if (power < text.size() && (text[power] == '+' || text[power] == '-')) ++power;
      const size_t digits = DigitsAt(text.substr(power));
      if (digits > 0) n = power + digits;
    }
    if (n > whole) {
      AddNumber(Token::Kind::kFloat, n);
    } else if (text.front() == '0' && text.substr(0, whole).find_first_not_of("0_") != text.npos) {
      Fail("a whole number that begins with 0");
    } else {
      AddNumber(Token::Kind::kInteger, whole);
    }
    return true;
  }
  bool ReadName() {
    size_t n = 0;
    while (n < rest().size() && IsNameByte(rest()[n])) ++n;
    if (n == 0) return false;
    Add(Token::Kind::kName, rest().substr(0, n));
    Advance(n);
    return true;
  }
  bool ReadString() {
    const char quote = rest().front();
    if (quote != '\'' && quote != '"') return false;
    size_t end = 1;
    while (end < rest().size() && rest()[end] != quote) end += rest()[end] == '\\' ? 2 : 1;
    if (end >= rest().size())
      Fail(Format("unexpected character '{}': a text without its end", quote));
    Add(Token::Kind::kString, EscapeReader(rest().substr(1, end - 1)).Read());
    Advance(end + 1);
    return true;
  }
  bool ReadOperator() {
    for (const std::string_view op : kOperators) {
      if (!rest().starts_with(op)) continue;
      Balance(op.front());
      Add(Token::Kind::kOperator, op);
      Advance(op.size());
      return true;
    }
    return false;
  }
  void Balance(char bracket) {
    if (bracket == '(') brackets_ += ')';
    if (bracket == '[') brackets_ += ']';
    if (bracket == '{') brackets_ += '}';
    if (bracket != ')' && bracket != ']' && bracket != '}') return;
    if (brackets_.empty()) Fail(Format("unexpected '{}'", bracket));
    if (brackets_.back() != bracket) {
      Fail(Format("unexpected '{}', expected '{}'", bracket, brackets_.back()));
    }
    brackets_.pop_back();
  }

  std::string_view text_;
  size_t at_ = 0;
  uint32_t line_ = 1;
  std::string brackets_;  // the closing brackets of the open ones
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> CutIntoTokens(std::string_view text) {
  const std::string lines = NormalLines(text);
  return Lexer(lines).Run();
}

}  // namespace moestro::jinja
