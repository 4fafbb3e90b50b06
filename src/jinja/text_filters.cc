// SPDX-License-Identifier: MIT
// Jinja's filters of texts.
#include <algorithm>
#include <optional>

#include "jinja/characters.h"
#include "jinja/filter_call.h"
#include "jinja/format_text.h"
#include "jinja/word_wrap.h"

namespace moestro::jinja {
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
