// SPDX-License-Identifier: MIT
// Jinja's filters of texts and numbers.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "jinja/characters.h"
#include "jinja/filter_call.h"
#include "jinja/format_text.h"

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
  return Value(change(TextOf(call.input)));
}
Value FilterUpper(const FilterCall& call) { return TextFilter(call, Upper); }
Value FilterLower(const FilterCall& call) { return TextFilter(call, Lower); }
Value FilterTitle(const FilterCall& call) { return TextFilter(call, TitleOfWords); }
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
  return Value(set.is_none() ? Strip(text, true, true) : StripSet(text, TextOf(set), true, true));
}
Value FilterEscape(const FilterCall& call) {
  call.ExpectNoArguments();
  if (call.input.is_escaped() && call.name != "forceescape") return call.input;
  return Value::EscapedText(EscapeHtml(TextOf(call.input)));
}
Value FilterSafe(const FilterCall& call) {
  call.ExpectNoArguments();
  return Value::EscapedText(TextOf(call.input));
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
  std::string indent;
  if (width.is_text()) {
    indent = width.text();
  } else {
    const int64_t n = WholeOf(width, "an indent's width");
    constexpr int64_t kMostWidth = 100'000;
    indent = std::string(static_cast<size_t>(std::clamp<int64_t>(n, 0, kMostWidth)), ' ');
  }
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
  return Value(std::move(made));
}
Value FilterFormat(const FilterCall& call) {
  Arguments& arguments = call.arguments;
  const std::string text = TextOf(call.input);
  if (!arguments.named.empty() && !arguments.values.empty()) {
    Raise("format() takes values by place or by name, not both");
  }
  if (arguments.named.empty()) return Value(FormatPercent(text, Value::Tuple(arguments.values)));
  const Value dict = Value::MakeDict();
  for (const auto& [name, value] : arguments.named) dict.dict().Set(name, value);
  return Value(FormatPercent(text, dict));
}
Value FilterCenter(const FilterCall& call) {
  ArgumentReader reader = call.Reader();
  Arguments width;
  width.values.push_back(reader.Take("width", Value(int64_t{80})));
  reader.ExpectEnd();
  return CallMethod(call.interpreter, Value(TextOf(call.input)), "center", width);
}
Value FilterTruncate(const FilterCall& call) {
  ArgumentReader reader = call.Reader();
  const int64_t length = WholeOf(reader.Take("length", Value(int64_t{255})), "a length");
  const bool cuts_words = FlagOf(reader, "killwords");
  const std::string end = TextOf(reader.Take("end", Value("...")));
  const int64_t leeway = WholeOf(reader.Take("leeway", Value(int64_t{5})), "a leeway");
  reader.ExpectEnd();
  const std::string& text = TextNeeded(call);
  const auto end_length = static_cast<int64_t>(CountCharacters(end));
  if (length < end_length) Raise("expected length >= {}, got {}", end_length, length);
  if (static_cast<int64_t>(CountCharacters(text)) <= length + leeway) return Value(text);
  std::string cut = text.substr(0, ByteOf(text, static_cast<size_t>(length - end_length)));
  if (!cuts_words) cut = cut.substr(0, cut.rfind(' '));
  return Value(cut + end);
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
// `is_field`: for a query's field, where a blank is "+" and "/" is escaped.
std::string UrlEncoded(std::string_view text, bool is_field) {
  const std::string_view plain = is_field ? "_.-~" : "_.-~/";
  std::string encoded;
  for (const char c : text) {
    const bool is_plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                          (c >= 'A' && c <= 'Z') || plain.contains(c);
    if (is_plain || (is_field && c == ' ')) {
      encoded += is_plain ? c : '+';
    } else {
      encoded += Format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return encoded;
}
Value FilterUrlEncode(const FilterCall& call) {
  call.ExpectNoArguments();
  const Value& input = call.input;
  if (input.is_text() || !IsIterable(input)) return Value(UrlEncoded(TextOf(input), false));
  Arguments none;
  const Value pairs = input.is_dict() ? CallMethod(call.interpreter, input, "items", none) : input;
  std::string encoded;
  for (const Value& pair : ItemsOf(pairs)) {
    const std::vector<Value> parts = ItemsOf(pair);
    if (parts.size() != 2) Raise("urlencode takes pairs of a key and a value");
    if (!encoded.empty()) encoded += '&';
    encoded += UrlEncoded(TextOf(parts[0]), true) + "=" + UrlEncoded(TextOf(parts[1]), true);
  }
  return Value(std::move(encoded));
}

// --- Numbers.

std::optional<double> RealOfText(std::string_view text) {
  std::string digits(Strip(text, true, true));
  std::erase(digits, '_');
  std::string_view left = digits;
  if (left.starts_with('+')) left.remove_prefix(1);
  return RealOfDigits(left);
}
std::optional<int64_t> WholeOfReal(double value) {
  constexpr double kEdge = 9223372036854775808.0;
  if (!(value > -kEdge && value < kEdge)) return std::nullopt;
  return static_cast<int64_t>(value);
}
std::optional<int64_t> WholeOfText(std::string_view text, int base) {
  std::string digits(Strip(text, true, true));
  std::erase(digits, '_');
  std::string_view left = digits;
  if (left.starts_with('+')) left.remove_prefix(1);
  if (base == 16 && (left.starts_with("0x") || left.starts_with("0X"))) left.remove_prefix(2);
  int64_t value = 0;
  const auto read = std::from_chars(left.data(), left.data() + left.size(), value, base);
  if (read.ec != std::errc() || read.ptr != left.data() + left.size() || left.empty()) {
    return std::nullopt;
  }
  return value;
}
Value FilterInt(const FilterCall& call) {
  ArgumentReader reader = call.Reader();
  const Value otherwise = reader.Take("default", Value(int64_t{0}));
  const int64_t base = WholeOf(reader.Take("base", Value(int64_t{10})), "a base");
  reader.ExpectEnd();
  if (base < 2 || base > 36) Raise("a base of {} is not from 2 to 36", base);
  if (call.input.is_undefined()) Raise("{}", call.input.why_undefined());
  const Value& input = call.input;
  std::optional<int64_t> whole;
  if (input.kind() == Value::Kind::kBigInt) return input;
  if (input.is_text()) {
    whole = WholeOfText(input.text(), static_cast<int>(base));
    if (!whole) {
      const auto real = RealOfText(input.text());
      whole = real ? WholeOfReal(*real) : std::nullopt;
    }
  } else if (input.is_number()) {
    whole = input.kind() == Value::Kind::kFloat ? WholeOfReal(input.real()) : WholeOf(input, "");
  }
  if (whole) return Value(*whole);
  // Python's whole numbers have no end.
  const auto real = input.is_text()                       ? RealOfText(input.text())
                    : input.kind() == Value::Kind::kFloat ? std::optional(input.real())
                                                          : std::nullopt;
  if (!real || !std::isfinite(*real)) return otherwise;
  return Value::BigInt(FormatPercent("%.0f", Value(*real)));
}
Value FilterFloat(const FilterCall& call) {
  ArgumentReader reader = call.Reader();
  const Value otherwise = reader.Take("default", Value(0.0));
  reader.ExpectEnd();
  if (call.input.is_undefined()) Raise("{}", call.input.why_undefined());
  if (call.input.is_number()) return Value(RealOf(call.input));
  const auto real = call.input.is_text() ? RealOfText(call.input.text()) : std::nullopt;
  return real ? Value(*real) : otherwise;
}
Value FilterAbs(const FilterCall& call) {
  call.ExpectNoArguments();
  if (call.input.is_undefined()) Raise("{}", call.input.why_undefined());
  if (!call.input.is_number()) Raise("bad operand type for abs(): '{}'", TypeName(call.input));
  if (call.input.kind() == Value::Kind::kFloat) return Value(std::abs(call.input.real()));
  const Value zero(int64_t{0});
  const Operator op = IsLess(call.input, zero) ? Operator::kSubtract : Operator::kAdd;
  return Combine(op, zero, call.input);
}
Value FilterRound(const FilterCall& call) {
  ArgumentReader reader = call.Reader();
  const int64_t precision = WholeOf(reader.Take("precision", Value(int64_t{0})), "a precision");
  const std::string method = TextOf(reader.Take("method", Value("common")));
  reader.ExpectEnd();
  constexpr int64_t kMostPrecision = 300;
  if (std::abs(precision) > kMostPrecision) Raise("a precision of {}", precision);
  const Value& input = call.input;
  if (input.is_undefined()) Raise("{}", input.why_undefined());
  if (!input.is_number()) Raise("type {} doesn't define __round__ method", TypeName(input));
  if (method != "common" && method != "ceil" && method != "floor") {
    Raise("method must be common, ceil or floor");
  }
  if (method != "common") {
    const double scale = std::pow(10.0, static_cast<double>(precision));
    const double scaled = RealOf(input) * scale;
    return Value((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
  }
  if (input.kind() == Value::Kind::kBigInt) return input;
  if (input.kind() != Value::Kind::kFloat && precision >= 0) return Value(WholeOf(input, ""));
  if (precision < 0) {
    const double scale = std::pow(10.0, static_cast<double>(-precision));
    const double rounded = std::nearbyint(RealOf(input) / scale) * scale;
    if (input.kind() == Value::Kind::kFloat) return Value(rounded);
    return Value(WholeOfReal(rounded).value_or(0));
  }
  // Rounds the decimal digits of the number's exact value; halves go to the even digit.
  const Value digits(FormatPercent(Format("%.{}f", precision), input));
  return Value(RealOfText(digits.text()).value_or(input.real()));
}

}  // namespace

const FilterTable& TextFilters() {
  static const FilterTable filters{
      {"abs", FilterAbs},
      {"capitalize", FilterCapitalize},
      {"center", FilterCenter},
      {"e", FilterEscape},
      {"escape", FilterEscape},
      {"float", FilterFloat},
      {"forceescape", FilterEscape},
      {"format", FilterFormat},
      {"indent", FilterIndent},
      {"int", FilterInt},
      {"lower", FilterLower},
      {"replace", FilterReplace},
      {"round", FilterRound},
      {"safe", FilterSafe},
      {"string", FilterString},
      {"title", FilterTitle},
      {"trim", FilterTrim},
      {"truncate", FilterTruncate},
      {"upper", FilterUpper},
      {"urlencode", FilterUrlEncode},
      {"wordcount", FilterWordCount},
  };
  return filters;
}

}  // namespace moestro::jinja
