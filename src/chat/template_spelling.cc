// SPDX-License-Identifier: MIT
#include "chat/template_spelling.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "base/format.h"

namespace moestro {
namespace {

bool IsBlank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool IsWordCharacter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

// A part of an expression.
struct TagPart {
  enum class Kind : uint8_t { kWord, kText, kSign };
  Kind kind = Kind::kSign;
  std::string_view text;
  size_t at = 0;  // in its tag

  bool IsSign(std::string_view sign) const { return kind == Kind::kSign && text == sign; }
};

struct Tag {
  std::string_view text;  // from its opening brace on; empty: it has no end
  std::vector<TagPart> parts;

  bool is_value() const { return text[1] == '{'; }
  bool strips_before() const { return text[2] == '-'; }
  bool strips_behind() const { return text[text.size() - 3] == '-'; }
};

// Cuts the tag that begins `text` into parts, up to its closing mark.
class TagReader {
 public:
  explicit TagReader(std::string_view text) : text_(text) {}

  Tag Read() {
    Tag tag;
    const std::string_view close = text_[1] == '{' ? "}}" : "%}";
    if (at_ < text_.size() && IsMark(text_[at_])) ++at_;
    size_t depth = 0;
    while (at_ < text_.size()) {
      if (IsBlank(text_[at_])) {
        ++at_;
        continue;
      }
      const size_t dash = IsMark(text_[at_]) ? 1 : 0;
      if (depth == 0 && text_.substr(at_ + dash).starts_with(close)) {
        tag.text = text_.substr(0, at_ + dash + close.size());
        return tag;
      }
      const TagPart part = Next();
      if (std::string_view("([{").contains(part.text[0])) ++depth;
      if (std::string_view(")]}").contains(part.text[0]) && depth > 0) --depth;
      tag.parts.push_back(part);
    }
    return tag;
  }

 private:
  static bool IsMark(char c) { return c == '-' || c == '~'; }

  TagPart Next() {
    const size_t begin = at_;
    const char c = text_[at_++];
    TagPart::Kind kind = TagPart::Kind::kSign;
    if (c == '"' || c == '\'') {
      kind = TagPart::Kind::kText;
      while (at_ < text_.size() && text_[at_] != c) at_ += text_[at_] == '\\' ? 2 : 1;
      at_ = std::min(at_ + 1, text_.size());
    } else if (IsWordCharacter(c)) {
      kind = TagPart::Kind::kWord;
      while (at_ < text_.size() && IsWordCharacter(text_[at_])) ++at_;
    }
    return {.kind = kind, .text = text_.substr(begin, at_ - begin), .at = begin};
  }

  std::string_view text_;
  size_t at_ = 2;
};

bool IsOperator(std::string_view word) {
  constexpr std::string_view kOperators[] = {"if", "elif", "else", "not", "and",   "or",
                                             "in", "is",   "for",  "set", "macro", "call"};
  return std::ranges::contains(kOperators, word);
}

// For each opening bracket the part that closes it; 0: none.
std::vector<size_t> ClosingParts(const Tag& tag) {
  std::vector<size_t> closing(tag.parts.size(), 0);
  std::vector<size_t> open;
  for (size_t i = 0; i < tag.parts.size(); ++i) {
    if (tag.parts[i].kind != TagPart::Kind::kSign) continue;
    const char c = tag.parts[i].text[0];
    if (std::string_view("([{").contains(c)) open.push_back(i);
    if (!std::string_view(")]}").contains(c) || open.empty()) continue;
    closing[open.back()] = i;
    open.pop_back();
  }
  return closing;
}

// The tag with brackets around each call of a function that something follows.
std::string WithBrackets(const Tag& tag) {
  const std::vector<size_t> closing = ClosingParts(tag);
  // From the back, so that places before stay what they are.
  std::map<size_t, std::string, std::greater<>> brackets;
  for (size_t i = 0; i + 1 < tag.parts.size(); ++i) {
    const bool is_function = tag.parts[i].kind == TagPart::Kind::kWord &&
                             tag.parts[i + 1].IsSign("(") && !IsOperator(tag.parts[i].text) &&
                             (i == 0 || !tag.parts[i - 1].IsSign("."));
    const size_t close = is_function ? closing[i + 1] : 0;
    if (close == 0 || close + 1 == tag.parts.size()) continue;
    const TagPart& next = tag.parts[close + 1];
    if (!next.IsSign(".") && !next.IsSign("[")) continue;
    brackets[tag.parts[i].at] += '(';
    brackets[next.at] += ')';
  }
  std::string text(tag.text);
  for (const auto& [at, bracket] : brackets) text.insert(at, bracket);
  return text;
}

class Speller {
 public:
  explicit Speller(std::string_view text) : text_(text) {}

  std::string Run() {
    while (at_ < text_.size()) {
      const size_t open = NextOpening();
      out_ += text_.substr(at_, open - at_);
      at_ = open;
      if (open == text_.size()) break;
      if (!(text_[open + 1] == '#' ? CopyComment() : CopyTag())) {
        out_ += text_.substr(at_);  // a mistake, which the library names
        break;
      }
    }
    return std::move(out_);
  }

 private:
  size_t NextOpening() const {
    for (size_t i = at_; i + 1 < text_.size(); ++i) {
      if (text_[i] == '{' && std::string_view("{%#").contains(text_[i + 1])) return i;
    }
    return text_.size();
  }

  // False: it has no end.
  bool CopyComment() {
    const size_t end = text_.find("#}", at_ + 2);
    if (end == std::string_view::npos) return false;
    const std::string_view words = text_.substr(at_ + 2, end - at_ - 2);
    const auto is_mark = [](char c) { return c == '-' || c == '~'; };
    out_ += "{#";
    if (!words.empty() && is_mark(words.front())) out_ += words.front();
    out_ += ' ';
    if (words.size() > 1 && is_mark(words.back())) out_ += words.back();
    out_ += "#}";
    at_ = end + 2;
    return true;
  }

  bool CopyTag() {
    const Tag tag = TagReader(text_.substr(at_)).Read();
    if (tag.text.empty()) return false;
    if (tag.is_value()) KeepIndent(tag);
    out_ += WithBrackets(tag);
    at_ += tag.text.size();
    last_strips_ = tag.strips_behind();
    last_end_ = out_.size();
    return true;
  }

  void KeepIndent(const Tag& tag) {
    if (tag.strips_before()) return;
    const bool is_stripped =
        last_strips_ && out_.find_first_not_of(" \t\r\n", last_end_) == std::string::npos;
    if (is_stripped) return;
    size_t begin = out_.size();
    while (begin > 0 && (out_[begin - 1] == ' ' || out_[begin - 1] == '\t')) --begin;
    const bool is_line = begin == 0 || out_[begin - 1] == '\n';
    if (!is_line || begin == out_.size()) return;
    const std::string blanks = out_.substr(begin);
    out_.resize(begin);
    out_ += Format("{{{{ \"{}\" }}}}", blanks);
  }

  std::string_view text_;
  size_t at_ = 0;
  std::string out_;
  bool last_strips_ = false;  // the last tag takes the blanks behind it
  size_t last_end_ = 0;       // where it ends in out_
};

}  // namespace

std::string SpellForLibrary(std::string_view text) {
  std::string lines(text);
  size_t kept = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (!text.substr(i).starts_with("\r\n")) lines[kept++] = text[i];
  }
  lines.resize(kept);
  return Speller(lines).Run();
}

}  // namespace moestro
