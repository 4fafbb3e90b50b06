// SPDX-License-Identifier: MIT
// Jinja's filters of texts.

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/characters.h"
#include "jinja/filters.h"
#include "jinja/object.h"

namespace moestro::jinja {

// Lines of words, as Python's module textwrap breaks them.

struct WrapForm {
  size_t width = 79;  // characters; REQUIRES: not 0
  bool breaks_long_words = true;
  bool breaks_at_hyphens = true;
  std::string_view between = "\n";  // lines
};

// Blanks stay as they are, but for those at the ends of lines that were made.
std::string WrapWords(std::string_view text, const WrapForm& form);

namespace {

using Characters = std::span<const std::string_view>;

uint32_t CodeOf(std::string_view c) { return FirstCharacter(c).code_point; }
bool IsOfWord(std::string_view c) { return IsLetter(CodeOf(c)) || IsDigit(CodeOf(c)) || c == "_"; }
bool IsWordOrPunctuation(std::string_view c) {
  return IsOfWord(c) || (c.size() == 1 && std::string_view("!\"'&.,?").contains(c));
}
// Letters and "_".
bool IsLetterLike(std::string_view c) { return IsOfWord(c) && !IsDigit(CodeOf(c)); }
bool IsWrapBlank(std::string_view c) {
  return c.size() == 1 && std::string_view("\t\n\v\f\r ").contains(c);
}

// A line's words and blanks.
class ChunkReader {
 public:
  ChunkReader(Characters text, bool breaks_at_hyphens)
      : text_(text), breaks_at_hyphens_(breaks_at_hyphens) {}

  std::vector<Characters> Read() {
    std::vector<Characters> chunks;
    for (size_t at = 0; at < text_.size();) {
      const size_t end = EndOf(at);
      chunks.push_back(text_.subspan(at, end - at));
      at = end;
    }
    return chunks;
  }

 private:
  bool IsAt(size_t at, bool (*is_kind)(std::string_view)) const {
    return at < text_.size() && is_kind(text_[at]);
  }
  bool IsDash(size_t at) const { return at < text_.size() && text_[at] == "-"; }

  // Behind dashes from `at` on, two or more, before a word; 0: there are none.
  size_t EndOfDashes(size_t at) const {
    size_t end = at;
    while (IsDash(end)) ++end;
    return end >= at + 2 && IsAt(end, IsOfWord) ? end : 0;
  }
  // Whether the hyphen at `at` stands between two parts of a word.
  bool IsHyphen(size_t at) const {
    const bool is_behind_letters =
        at >= 2 && IsAt(at - 1, IsLetterLike) &&
        (IsAt(at - 2, IsLetterLike) || (at >= 3 && IsDash(at - 2) && IsAt(at - 3, IsLetterLike)));
    return is_behind_letters && IsAt(at + 1, IsLetterLike) &&
           (IsAt(at + 2, IsLetterLike) || (IsDash(at + 2) && IsAt(at + 3, IsLetterLike)));
  }

  size_t EndOf(size_t at) const {
    size_t end = at;
    while (IsAt(end, IsWrapBlank)) ++end;
    if (end > at) return end;
    if (breaks_at_hyphens_ && at > 0 && IsWordOrPunctuation(text_[at - 1])) {
      if (const size_t dashes = EndOfDashes(at)) return dashes;
    }
    for (end = at + 1; end < text_.size() && !IsWrapBlank(text_[end]); ++end) {
      if (!breaks_at_hyphens_) continue;
      if (IsDash(end) && IsHyphen(end)) return end + 1;
      if (IsWordOrPunctuation(text_[end - 1]) && EndOfDashes(end) > 0) return end;
    }
    return end;
  }

  Characters text_;
  bool breaks_at_hyphens_;
};

class LineBreaker {
 public:
  LineBreaker(std::vector<Characters> chunks, const WrapForm& form)
      : chunks_(std::move(chunks)), form_(form) {}

  std::vector<std::string> Break() {
    while (next_ < chunks_.size()) ReadLine();
    return std::move(lines_);
  }

 private:
  static bool IsBlankChunk(Characters chunk) {
    return std::ranges::all_of(chunk, [](std::string_view c) { return IsBlank(CodeOf(c)); });
  }

  void ReadLine() {
    if (!lines_.empty() && IsBlankChunk(chunks_[next_])) ++next_;
    std::vector<Characters> line;
    size_t length = 0;
    while (next_ < chunks_.size() && length + chunks_[next_].size() <= form_.width) {
      length += chunks_[next_].size();
      line.push_back(chunks_[next_++]);
    }
    if (next_ < chunks_.size() && chunks_[next_].size() > form_.width) TakeLong(line, length);
    if (!line.empty() && IsBlankChunk(line.back())) line.pop_back();
    if (line.empty()) return;
    std::string& text = lines_.emplace_back();
    for (const Characters chunk : line) {
      for (const std::string_view c : chunk) text += c;
    }
  }

  // Cuts a word for which no line has room.
  void TakeLong(std::vector<Characters>& line, size_t length) {
    Characters& chunk = chunks_[next_];
    if (!form_.breaks_long_words) {
      if (line.empty()) line.push_back(chunks_[next_++]);
      return;
    }
    const size_t room = form_.width - length;
    size_t end = room;
    if (form_.breaks_at_hyphens) {
      size_t hyphen = room;
      while (hyphen > 0 && chunk[hyphen - 1] != "-") --hyphen;
      const Characters before = chunk.first(hyphen > 0 ? hyphen - 1 : 0);
      if (std::ranges::any_of(before, [](std::string_view c) { return c != "-"; })) end = hyphen;
    }
    line.push_back(chunk.first(end));
    chunk = chunk.subspan(end);
  }

  std::vector<Characters> chunks_;
  const WrapForm& form_;
  size_t next_ = 0;
  std::vector<std::string> lines_;
};

}  // namespace

std::string WrapWords(std::string_view text, const WrapForm& form) {
  std::string wrapped;
  bool is_first = true;
  for (const std::string_view line : SplitLines(text)) {
    if (!is_first) wrapped += form.between;
    is_first = false;
    const std::vector<std::string_view> characters = SplitCharacters(line);
    bool is_first_part = true;
    for (const std::string& part :
         LineBreaker(ChunkReader(characters, form.breaks_at_hyphens).Read(), form).Break()) {
      if (!is_first_part) wrapped += form.between;
      is_first_part = false;
      wrapped += part;
    }
  }
  return wrapped;
}

namespace {

// The text for filters that take no other value.
const std::string& TextNeeded(const FilterCall& call) {
  if (call.input.is_undefined()) Raise("{}", call.input.why_undefined());
  if (!call.input.is_text())
    Raise("{}: a str is needed, not '{}'", call.name, TypeName(call.input));
  return call.input.text();
}

Value TextFilter(const FilterCall& call, std::string (*change)(std::string_view)) {
  call.ExpectNoArguments();
  return WithEscapesOf(call.input, change(TextOf(call.input)));
}
Value FilterUpper(const FilterCall& call) { return TextFilter(call, Upper); }
Value FilterLower(const FilterCall& call) { return TextFilter(call, Lower); }
Value FilterTitle(const FilterCall& call) {
  call.ExpectNoArguments();
  return Value(TitleOfWords(TextOf(call.input)));
}
Value FilterCapitalize(const FilterCall& call) { return TextFilter(call, Capitalize); }

Value FilterString(const FilterCall& call) {
  call.ExpectNoArguments();
  return call.input.is_text() ? call.input : Value(TextOf(call.input));
}
Value FilterTrim(const FilterCall& call) {
  ArgumentReader reader = call.Reader();
  const Value set = reader.Take("chars", Value::None());
  reader.ExpectEnd();
  const std::string text = TextOf(call.input);
  return WithEscapesOf(call.input,
                       std::string(set.is_none() ? Strip(text, true, true)
                                                 : StripSet(text, TextOf(set), true, true)));
}
Value FilterReplace(const FilterCall& call) {
  ArgumentReader reader = call.Reader();
  Arguments texts;
  texts.values = {Value(TextOf(reader.Take("old"))), Value(TextOf(reader.Take("new")))};
  const auto count = reader.TakeIfGiven("count");
  reader.ExpectEnd();
  if (count && !count->is_none()) texts.values.push_back(*count);
  return CallMethod(call.interpreter, Value(TextOf(call.input)), "replace", texts);
}
Value FilterIndent(const FilterCall& call) {
  ArgumentReader reader = call.Reader();
  const Value width = reader.Take("width", Value(int64_t{4}));
  const bool indents_first = FlagOf(reader, "first");
  const bool indents_blank = FlagOf(reader, "blank");
  reader.ExpectEnd();
  const std::string indent =
      width.is_text() ? width.text() : BlanksOf(WholeOf(width, "an indent's width"));
  std::string text = TextNeeded(call);
  text += '\n';
  std::string made;
  bool is_first = true;
  for (const std::string_view line : SplitLines(text)) {
    if (!is_first) made += '\n';
    const bool has_indent = is_first ? indents_first : indents_blank || !line.empty();
    if (has_indent) made += indent;
    made += line;
    is_first = false;
    if (made.size() > kMostTextBytes) Raise("a text of more than {} bytes", kMostTextBytes);
  }
  return WithEscapesOf(call.input, std::move(made));
}
Value FilterFormat(const FilterCall& call) {
  Arguments& arguments = call.arguments;
  const Value text = call.input.is_text() ? call.input : Value(TextOf(call.input));
  if (!arguments.named.empty() && !arguments.values.empty()) {
    Raise("format() takes values by place or by name, not both");
  }
  if (arguments.named.empty()) return FormatPercent(text, Value::Tuple(arguments.values));
  const Value dict = Value::MakeDict();
  for (const auto& [name, value] : arguments.named) dict.dict().Set(name, value);
  return FormatPercent(text, dict);
}
Value FilterCenter(const FilterCall& call) {
  ArgumentReader reader = call.Reader();
  Arguments width;
  width.values.push_back(reader.Take("width", Value(int64_t{80})));
  reader.ExpectEnd();
  const Value text = call.input.is_text() ? call.input : Value(TextOf(call.input));
  return CallMethod(call.interpreter, text, "center", width);
}
Value FilterTruncate(const FilterCall& call) {
  ArgumentReader reader = call.Reader();
  const int64_t length = WholeOf(reader.Take("length", Value(int64_t{255})), "a length");
  const bool cuts_words = FlagOf(reader, "killwords");
  const Value given_end = reader.Take("end", Value("..."));
  const std::string end = TextOf(given_end);
  const int64_t leeway = WholeOf(reader.Take("leeway", Value(int64_t{5})), "a leeway");
  reader.ExpectEnd();
  const std::string& text = TextNeeded(call);
  const auto end_length = static_cast<int64_t>(CountCharacters(end));
  if (length < end_length) Raise("expected length >= {}, got {}", end_length, length);
  if (static_cast<int64_t>(CountCharacters(text)) <= length + leeway) return call.input;
  std::string cut = text.substr(0, ByteOf(text, static_cast<size_t>(length - end_length)));
  if (!cuts_words) cut = cut.substr(0, cut.rfind(' '));
  return Combine(Operator::kAdd, WithEscapesOf(call.input, std::move(cut)), given_end);
}
Value FilterWordCount(const FilterCall& call) {
  call.ExpectNoArguments();
  const std::string text = TextOf(call.input);
  int64_t words = 0;
  bool is_in_word = false;
  for (const std::string_view c : SplitCharacters(text)) {
    const uint32_t code = FirstCharacter(c).code_point;
    const bool is_of_word = IsLetter(code) || IsDigit(code) || code == '_';
    if (is_of_word && !is_in_word) ++words;
    is_in_word = is_of_word;
  }
  return Value(words);
}
Value FilterWordWrap(const FilterCall& call) {
  ArgumentReader reader = call.Reader();
  const int64_t width = WholeOf(reader.Take("width", Value(int64_t{79})), "a width");
  WrapForm form{.breaks_long_words = IsTrue(reader.Take("break_long_words", Value(true)))};
  const Value between = reader.Take("wrapstring", Value::None());
  form.breaks_at_hyphens = IsTrue(reader.Take("break_on_hyphens", Value(true)));
  reader.ExpectEnd();
  const std::string& text = TextNeeded(call);
  if (width < 1 && !text.empty()) Raise("invalid width {} (must be > 0)", width);
  const std::string line_end = between.is_none() ? "\n" : TextOf(between);
  form.width = static_cast<size_t>(std::max<int64_t>(width, 1));
  form.between = line_end;
  return Value(WrapWords(text, form));
}

}  // namespace

const FilterTable& TextFilters() {
  static const FilterTable filters{
      {"capitalize", FilterCapitalize}, {"center", FilterCenter}, {"format", FilterFormat},
      {"indent", FilterIndent},         {"lower", FilterLower},   {"replace", FilterReplace},
      {"string", FilterString},         {"title", FilterTitle},   {"trim", FilterTrim},
      {"truncate", FilterTruncate},     {"upper", FilterUpper},   {"wordcount", FilterWordCount},
      {"wordwrap", FilterWordWrap},
  };
  return filters;
}

}  // namespace moestro::jinja
