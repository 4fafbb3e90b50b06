// SPDX-License-Identifier: MIT
#include "chat/template_guard.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "base/format.h"

namespace moestro {
namespace {

// The library parses by recursion and with recursive regular expressions: each of these is stack.
constexpr size_t kMaxTemplateBytes = size_t{64} << 10U;  // parsing takes time by its square
constexpr size_t kMaxRun = 512;                          // blanks or word characters in a row
constexpr size_t kMaxTagParts = 512;
constexpr size_t kMaxBrackets = 24;
constexpr size_t kMaxBlocks = 48;
constexpr size_t kMaxSums = 64;  // of one tag; each may double a text
// Digits of a body's size, filled up with blanks.
constexpr size_t kSizeDigits = 7;

bool IsBlank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool IsWord(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// A part of an expression.
struct TagPart {
  enum class Kind : uint8_t { kWord, kNumber, kText, kSign };
  Kind kind = Kind::kSign;
  std::string_view text;
  size_t at = 0;
};

struct Tag {
  std::string_view text;   // from its opening brace on
  char kind = '{';         // '{' a value, '%' a statement
  std::string_view close;  // with its '-'
  std::vector<TagPart> parts;
};

bool IsSign(const TagPart& part, std::string_view sign) {
  return part.kind == TagPart::Kind::kSign && part.text == sign;
}

std::unexpected<Error> Refuse(size_t at, std::string_view why) {
  return Fail(Errc::kUnsupported, "byte {}: {}", at, why);
}

Status CheckRuns(std::string_view text) {
  size_t blanks = 0;
  size_t words = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    blanks = IsBlank(text[i]) ? blanks + 1 : 0;
    words = IsWord(text[i]) ? words + 1 : 0;
    if (std::max(blanks, words) > kMaxRun) return Refuse(i, "a very long word or gap");
  }
  return {};
}

// Cuts a tag into parts, up to its closing mark.
class TagReader {
 public:
  TagReader(std::string_view text, size_t at) : text_(text), begin_(at), at_(at + 2) {}

  Result<Tag> Read() {
    Tag tag;
    tag.kind = text_[begin_ + 1];
    const std::string_view close = tag.kind == '{' ? "}}" : "%}";
    if (at_ < text_.size() && (text_[at_] == '-' || text_[at_] == '~')) ++at_;
    size_t depth = 0;
    while (at_ < text_.size()) {
      if (IsBlank(text_[at_])) {
        ++at_;
        continue;
      }
      const size_t dash = text_[at_] == '-' || text_[at_] == '~' ? 1 : 0;
      if (depth == 0 && text_.substr(at_ + dash).starts_with(close)) {
        tag.close = text_.substr(at_, dash + 2);
        tag.text = text_.substr(begin_, at_ + tag.close.size() - begin_);
        return tag;
      }
      const TagPart part = Next();
      if (part.text.empty()) return Refuse(part.at, "a text without end");
      if (std::string_view("([{").contains(part.text[0]) && ++depth > kMaxBrackets) {
        return Refuse(part.at, "brackets nested too deeply");
      }
      if (std::string_view(")]}").contains(part.text[0]) && depth > 0) --depth;
      tag.parts.push_back(part);
      if (tag.parts.size() > kMaxTagParts) return Refuse(part.at, "a very long expression");
    }
    return Refuse(begin_, "a tag without end");
  }

 private:
  TagPart Next() {
    const size_t begin = at_;
    const char c = text_[at_];
    if (c == '"' || c == '\'') {
      for (++at_; at_ < text_.size() && text_[at_] != c; ++at_) {
        if (text_[at_] == '\\') ++at_;
      }
      if (at_ >= text_.size()) return {TagPart::Kind::kText, {}, begin};
      ++at_;
      return {TagPart::Kind::kText, text_.substr(begin, at_ - begin), begin};
    }
    if (IsWord(c)) {
      while (at_ < text_.size() && IsWord(text_[at_])) ++at_;
      const bool is_number = c >= '0' && c <= '9';
      return {is_number ? TagPart::Kind::kNumber : TagPart::Kind::kWord,
              text_.substr(begin, at_ - begin), begin};
    }
    const std::string_view two = text_.substr(at_, 2);
    at_ += two == "//" || two == "**" || two == "==" ? 2 : 1;
    return {TagPart::Kind::kSign, text_.substr(begin, at_ - begin), begin};
  }

  std::string_view text_;
  size_t begin_;
  size_t at_;
};

bool IsPlainNumber(const TagPart& part) {
  return part.kind == TagPart::Kind::kNumber && part.text.size() <= 6 && part.text[0] != '0' &&
         std::ranges::all_of(part.text, [](char c) { return c >= '0' && c <= '9'; });
}

// What a sign before this part makes of it: an operation with two sides, or with one.
bool EndsValue(const TagPart& part) {
  if (part.kind != TagPart::Kind::kSign) return true;
  return part.text == ")" || part.text == "]" || part.text == "}";
}

bool IsOperator(std::string_view word) {
  constexpr std::string_view kOperators[] = {"if", "elif", "else", "not", "and",   "or",
                                             "in", "is",   "for",  "set", "macro", "call"};
  return std::ranges::contains(kOperators, word);
}

// Operations that stop the process, or that make much of little.
Status CheckOperation(const Tag& tag, size_t i) {
  const TagPart none;
  const TagPart& part = tag.parts[i];
  const TagPart& next = i + 1 < tag.parts.size() ? tag.parts[i + 1] : none;
  const TagPart& after = i + 2 < tag.parts.size() ? tag.parts[i + 2] : none;
  const bool has_left = i > 0 && EndsValue(tag.parts[i - 1]);
  if (IsSign(part, "%") || IsSign(part, "/") || IsSign(part, "//")) {
    const bool goes_on = IsSign(after, ".") || IsSign(after, "[") || IsSign(after, "(");
    if (!IsPlainNumber(next) || goes_on) return Refuse(part.at, "division by a computed number");
  }
  if (has_left && (IsSign(part, "*") || IsSign(part, "**"))) {
    return Refuse(part.at, "multiplication");
  }
  const bool is_method = i > 0 && IsSign(tag.parts[i - 1], ".") && IsSign(next, "(");
  if (is_method && part.text == "insert") return Refuse(part.at, "insert()");
  if (is_method && (part.text == "split" || part.text == "replace")) {
    const bool is_plain = after.kind == TagPart::Kind::kText && after.text.size() > 2;
    if (!is_plain) return Refuse(part.at, Format("{}() of a computed text", part.text));
  }
  return {};
}

// A slice with a stride must be of the whole text: the library reads past its ends.
Status CheckSlices(const Tag& tag) {
  std::vector<size_t> colons{0};
  for (size_t i = 0; i < tag.parts.size(); ++i) {
    const TagPart& part = tag.parts[i];
    const char c = part.kind == TagPart::Kind::kSign ? part.text[0] : 'x';
    if (c == '(' || c == '[' || c == '{') colons.push_back(c == '[' ? 0 : kMaxTagParts);
    if ((c == ')' || c == ']' || c == '}') && colons.size() > 1) colons.pop_back();
    if (c != ':' || ++colons.back() != 2) continue;
    const bool is_whole = i >= 2 && IsSign(tag.parts[i - 1], ":") && IsSign(tag.parts[i - 2], "[");
    const size_t step = i + 1 < tag.parts.size() && IsSign(tag.parts[i + 1], "-") ? i + 2 : i + 1;
    const bool is_plain = step + 1 < tag.parts.size() && IsPlainNumber(tag.parts[step]) &&
                          IsSign(tag.parts[step + 1], "]");
    if (!is_whole || !is_plain) return Refuse(part.at, "a slice with a stride");
  }
  return {};
}

Status CheckTag(const Tag& tag) {
  size_t sums = 0;
  for (size_t i = 0; i < tag.parts.size(); ++i) {
    const TagPart& part = tag.parts[i];
    if (part.text.contains("_moestro_")) return Refuse(part.at, "a reserved name");
    if (IsSign(part, "~") || IsSign(part, "+")) ++sums;
    TRY_STATUS(CheckOperation(tag, i));
  }
  if (sums > kMaxSums) return Refuse(tag.parts.front().at, "a very long sum");
  return CheckSlices(tag);
}

class Guard {
 public:
  explicit Guard(std::string_view text) : text_(text) {}

  Result<std::string> Run() {
    if (text_.size() > kMaxTemplateBytes) {
      return Fail(Errc::kUnsupported, "{} bytes long", text_.size());
    }
    TRY_STATUS(CheckRuns(text_));
    size_t at = 0;
    while (at < text_.size()) {
      const size_t open = NextOpening(at);
      out_ += text_.substr(at, open - at);
      if (open == text_.size()) break;
      if (text_[open + 1] == '#') {
        TRY(at, CopyComment(open));
        continue;
      }
      TRY(const Tag tag, TagReader(text_, open).Read());
      TRY_STATUS(CheckTag(tag));
      TRY_STATUS(tag.kind == '{' ? CopyValue(tag) : CopyStatement(tag));
      at = open + tag.text.size();
      last_strips_ = tag.close.starts_with('-');
      last_end_ = out_.size();
    }
    return std::move(out_);
  }

 private:
  // A body that may run more than once, and where its size is to be written.
  struct Body {
    size_t size_at = 0;
    size_t begin = 0;
    bool repeats = false;
  };

  size_t NextOpening(size_t at) const {
    for (size_t i = at; i + 1 < text_.size(); ++i) {
      if (text_[i] == '{' && std::string_view("{%#").contains(text_[i + 1])) return i;
    }
    return text_.size();
  }

  // Without its words: the library matches them by recursion.
  Result<size_t> CopyComment(size_t open) {
    const size_t end = text_.find("#}", open + 2);
    if (end == std::string_view::npos) return Refuse(open, "a comment without end");
    const std::string_view words = text_.substr(open + 2, end - open - 2);
    const auto is_mark = [](char c) { return c == '-' || c == '~'; };
    out_ += "{#";
    if (!words.empty() && is_mark(words.front())) out_ += words.front();
    out_ += ' ';
    if (words.size() > 1 && is_mark(words.back())) out_ += words.back();
    out_ += "#}";
    return end + 2;
  }

  size_t BeginOf(const Tag& tag) const {
    return static_cast<size_t>(tag.text.data() - text_.data());
  }

  // The tag's text from part `begin` to its closing mark. The library does not read on behind a
  // call of a function; behind brackets it does: f(x).y becomes (f(x)).y.
  std::string Expression(const Tag& tag, size_t begin) const {
    const size_t open = BeginOf(tag);
    const size_t first = tag.parts[begin].at;
    std::string text(
        tag.text.substr(first - open, tag.text.size() - tag.close.size() - (first - open)));
    // From the back, so that places before stay what they are.
    std::map<size_t, std::string, std::greater<>> brackets;
    for (size_t i = begin; i + 1 < tag.parts.size(); ++i) {
      AddOwned(tag, i, first, brackets);
      const size_t end = EndOfCall(tag, i);
      if (end == 0) continue;
      brackets[tag.parts[i].at - first] += '(';
      brackets[tag.parts[end].at - first] += ')';
    }
    for (const auto& [at, bracket] : brackets) text.insert(at, bracket);
    return text;
  }

  // What a list, a dictionary or append() takes in at part i is copied: a value never holds itself,
  // and holds nothing twice.
  static void AddOwned(const Tag& tag, size_t i, size_t first,
                       std::map<size_t, std::string, std::greater<>>& brackets) {
    const TagPart& part = tag.parts[i];
    const bool is_append = i > 0 && part.text == "append" && IsSign(tag.parts[i - 1], ".") &&
                           IsSign(tag.parts[i + 1], "(");
    const bool is_value =
        i > 0 && EndsValue(tag.parts[i - 1]) && !IsOperator(tag.parts[i - 1].text);
    const bool is_literal = !is_value && (IsSign(part, "[") || IsSign(part, "{"));
    if (!is_append && !is_literal) return;
    const size_t close = ClosingPart(tag, is_append ? i + 1 : i);
    if (close == 0 || (is_append && close == i + 2)) return;
    const size_t open_at = is_append ? tag.parts[i + 2].at : part.at;
    const size_t close_at = is_append ? tag.parts[close].at : tag.parts[close].at + 1;
    brackets[open_at - first] += Format("({}(", kOwnFunction);
    brackets[close_at - first] += "))";
  }

  // Of the bracket at part `open`; 0: none.
  static size_t ClosingPart(const Tag& tag, size_t open) {
    size_t depth = 0;
    for (size_t i = open; i < tag.parts.size(); ++i) {
      if (tag.parts[i].kind != TagPart::Kind::kSign) continue;
      if (std::string_view("([{").contains(tag.parts[i].text[0])) ++depth;
      if (std::string_view(")]}").contains(tag.parts[i].text[0]) && --depth == 0) return i;
    }
    return 0;
  }

  // The part that goes on behind a function's call that begins at part i; 0: none does.
  static size_t EndOfCall(const Tag& tag, size_t i) {
    const bool is_function = tag.parts[i].kind == TagPart::Kind::kWord &&
                             IsSign(tag.parts[i + 1], "(") && !IsOperator(tag.parts[i].text) &&
                             (i == 0 || !IsSign(tag.parts[i - 1], "."));
    const size_t close = is_function ? ClosingPart(tag, i + 1) : 0;
    if (close == 0 || close + 1 == tag.parts.size()) return 0;
    const TagPart& next = tag.parts[close + 1];
    return IsSign(next, ".") || IsSign(next, "[") ? close + 1 : 0;
  }

  // `part` begins the value.
  void CopyKept(const Tag& tag, size_t part, std::string_view function = kKeepFunction) {
    out_ += tag.text.substr(0, tag.parts[part].at - BeginOf(tag));
    out_ += Format("{}({}) {}", function, Expression(tag, part), tag.close);
  }

  // The library drops blanks that begin a line before a value; they are printed as one.
  void KeepIndent(const Tag& tag) {
    if (tag.text.size() > 2 && tag.text[2] == '-') return;
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

  Status CopyValue(const Tag& tag) {
    if (tag.parts.empty()) return Refuse(0, "an empty tag");
    KeepIndent(tag);
    CopyKept(tag, 0);
    return {};
  }

  Status CopyStatement(const Tag& tag) {
    if (tag.parts.empty()) return Refuse(0, "an empty tag");
    const std::string_view word = tag.parts[0].text;
    const auto equals =
        std::ranges::find_if(tag.parts, [](const TagPart& part) { return IsSign(part, "="); });
    const bool assigns = word == "set" && equals != tag.parts.end();
    if (assigns && equals + 1 != tag.parts.end()) {
      const bool is_attribute = std::any_of(tag.parts.begin(), equals,
                                            [](const TagPart& part) { return IsSign(part, "."); });
      CopyKept(tag, static_cast<size_t>(equals - tag.parts.begin()) + 1,
               is_attribute ? kOwnFunction : kKeepFunction);
    } else {
      out_ += tag.text.substr(0, tag.parts[0].at - BeginOf(tag));
      out_ += Expression(tag, 0);
      out_ += tag.close;
    }
    const bool repeats = word == "for" || word == "macro" || word == "call";
    const bool opens = repeats || word == "if" || word == "filter" || (word == "set" && !assigns);
    if (opens) return Open(tag, repeats);
    if (word.starts_with("end") && word != "endgeneration") return Close(tag);
    return {};
  }

  Status Open(const Tag& tag, bool repeats) {
    bodies_.push_back({.size_at = 0, .begin = out_.size(), .repeats = repeats});
    if (bodies_.size() > kMaxBlocks) return Refuse(tag.parts[0].at, "blocks nested too deeply");
    if (!repeats) return {};
    out_ += Format("{{% set _moestro_unused = {}(", kTickFunction);
    bodies_.back().size_at = out_.size();
    out_ += std::string(kSizeDigits, ' ') + ") " + std::string(tag.close);
    return {};
  }

  Status Close(const Tag& tag) {
    if (bodies_.empty()) return Refuse(tag.parts[0].at, "an end without a beginning");
    const Body body = bodies_.back();
    bodies_.pop_back();
    if (!body.repeats) return {};
    const std::string size = Format("{}", out_.size() - body.begin);
    out_.replace(body.size_at, size.size(), size);
    return {};
  }

  std::string_view text_;
  std::string out_;
  std::vector<Body> bodies_;
  bool last_strips_ = false;  // the last tag takes the blanks behind it
  size_t last_end_ = 0;       // where it ends in out_
};

}  // namespace

Result<std::string> GuardTemplate(std::string_view text) { return Guard(text).Run(); }

}  // namespace moestro
