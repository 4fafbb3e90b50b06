// SPDX-License-Identifier: MIT
// Jinja's filters, and `tojson` as transformers has it.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <optional>
#include <unordered_map>

#include "jinja/characters.h"
#include "jinja/failure.h"
#include "jinja/format_text.h"
#include "jinja/interpreter.h"
#include "jinja/json_text.h"

namespace moestro::jinja {
namespace {

// One filter at work.
struct FilterCall {
  Interpreter& interpreter;
  const Value& input;
  Arguments& arguments;
  std::string_view name;

  ArgumentReader Reader() const { return {name, arguments}; }
  void ExpectNoArguments() const { Reader().ExpectEnd(); }
};

bool FlagOf(ArgumentReader& reader, std::string_view name) {
  return IsTrue(reader.Take(name, Value(false)));
}

std::vector<Value> ItemsOfInput(const FilterCall& call) { return ItemsOf(call.input); }
// The same for filters that do not look at what is false.
std::vector<Value> ItemsIfTrue(const FilterCall& call) {
  return IsTrue(call.input) ? ItemsOf(call.input) : std::vector<Value>();
}

// --- Attributes of items: "a.b.0" or 0.

std::vector<Value> AttributePath(const Value& attribute) {
  if (!attribute.is_text()) return {attribute};
  std::vector<Value> path;
  std::string_view left = attribute.text();
  while (true) {
    const size_t dot = std::min(left.find('.'), left.size());
    const std::string_view part = left.substr(0, dot);
    int64_t index = 0;
    const auto read = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool is_index = !part.empty() && part.front() != '-' && read.ec == std::errc() &&
                          read.ptr == part.data() + part.size();
    path.push_back(is_index ? Value(index) : Value(part));
    if (dot == left.size()) return path;
    left.remove_prefix(dot + 1);
  }
}

Value AttributeAt(Interpreter& interpreter, Value item, const std::vector<Value>& path,
                  const std::optional<Value>& otherwise) {
  for (const Value& part : path) {
    item = interpreter.GetItem(item, part);
    if (item.is_undefined() && otherwise) item = *otherwise;
  }
  return item;
}

// What items are compared by: an attribute of theirs or they themselves, small letters perhaps.
class KeyMaker {
 public:
  KeyMaker(Interpreter& interpreter, const std::optional<Value>& attribute, bool heeds_case,
           std::optional<Value> otherwise = std::nullopt)
      : interpreter_(interpreter), heeds_case_(heeds_case), otherwise_(std::move(otherwise)) {
    if (attribute && !attribute->is_none()) path_ = AttributePath(*attribute);
  }
  Value KeyOf(const Value& item) const { return Folded(PlainKeyOf(item)); }
  Value PlainKeyOf(const Value& item) const {
    return AttributeAt(interpreter_, item, path_, otherwise_);
  }
  Value Folded(Value key) const {
    return key.is_text() && !heeds_case_ ? Value(Lower(key.text())) : std::move(key);
  }

 private:
  Interpreter& interpreter_;
  bool heeds_case_;
  std::optional<Value> otherwise_;
  std::vector<Value> path_;
};

std::optional<Value> AttributeArgument(ArgumentReader& reader) {
  return reader.TakeIfGiven("attribute");
}

// The items in the order of keys. Equal ones stay as they were, also when the order is reversed.
template <class KeyOf>
std::vector<Value> Sorted(const std::vector<Value>& items, bool is_reversed, KeyOf key_of) {
  std::vector<std::pair<Value, size_t>> keys;
  for (size_t i = 0; i < items.size(); ++i) keys.emplace_back(key_of(items[i]), i);
  std::ranges::stable_sort(keys, [is_reversed](const auto& a, const auto& b) {
    return is_reversed ? IsLess(b.first, a.first) : IsLess(a.first, b.first);
  });
  std::vector<Value> sorted;
  for (const auto& [key, place] : keys) sorted.push_back(items[place]);
  return sorted;
}

// --- Texts.

// Of filters that take nothing else.
const std::string& TextNeeded(const FilterCall& call) {
  if (call.input.is_undefined()) Raise("{}", call.input.why_undefined());
  if (!call.input.is_text()) Raise("{}: a str is needed, not '{}'", call.name, TypeName(call.input));
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
// `is_field`: of a query, where a blank is "+" and "/" is not plain.
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
  double value = 0.0;
  const auto read = std::from_chars(left.data(), left.data() + left.size(), value);
  if (read.ec == std::errc::invalid_argument || read.ptr != left.data() + left.size()) {
    return std::nullopt;
  }
  return value;
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
  return whole ? Value(*whole) : otherwise;
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
  // Of the digits that the number really has, halves go to the even one.
  const Value digits(FormatPercent(Format("%.{}f", precision), input));
  return Value(RealOfText(digits.text()).value_or(input.real()));
}

// --- Lists.

Value FilterLength(const FilterCall& call) {
  call.ExpectNoArguments();
  return Value(static_cast<int64_t>(LengthOf(call.input)));
}
Value FilterList(const FilterCall& call) {
  call.ExpectNoArguments();
  return Value::MakeList(ItemsOfInput(call));
}
Value FilterFirst(const FilterCall& call) {
  call.ExpectNoArguments();
  if (call.input.is_lazy()) {
    std::vector<Value>& items = call.input.list().items;
    if (items.empty()) return Value::Undefined("No first item, sequence was empty.");
    Value first = std::move(items.front());
    items.erase(items.begin());
    return first;
  }
  std::vector<Value> items = ItemsOfInput(call);
  return items.empty() ? Value::Undefined("No first item, sequence was empty.") : items.front();
}
Value FilterLast(const FilterCall& call) {
  call.ExpectNoArguments();
  if (call.input.is_lazy()) Raise("'generator' object is not reversible");
  std::vector<Value> items = ItemsOfInput(call);
  return items.empty() ? Value::Undefined("No last item, sequence was empty.") : items.back();
}
Value FilterReverse(const FilterCall& call) {
  call.ExpectNoArguments();
  std::vector<Value> items = ItemsOfInput(call);
  std::ranges::reverse(items);
  if (call.input.is_lazy()) return Value::MakeList(std::move(items));
  if (!call.input.is_text()) return Value::Lazy(std::move(items));
  std::string text;
  for (const Value& c : items) text += c.text();
  return Value(std::move(text));
}
Value FilterJoin(const FilterCall& call) {
  ArgumentReader reader = call.Reader();
  const std::string between = TextOf(reader.Take("d", Value("")));
  const auto attribute = AttributeArgument(reader);
  reader.ExpectEnd();
  const KeyMaker parts(call.interpreter, attribute, /*heeds_case=*/true);
  std::string text;
  bool is_first = true;
  for (const Value& item : ItemsOfInput(call)) {
    if (!is_first) text += between;
    is_first = false;
    text += TextOf(parts.PlainKeyOf(item));
    if (text.size() > kMostTextBytes) Raise("a text of more than {} bytes", kMostTextBytes);
  }
  return Value(std::move(text));
}
Value FilterSort(const FilterCall& call) {
  ArgumentReader reader = call.Reader();
  const bool is_reversed = FlagOf(reader, "reverse");
  const bool heeds_case = FlagOf(reader, "case_sensitive");
  const auto attribute = AttributeArgument(reader);
  reader.ExpectEnd();
  std::vector<KeyMaker> makers;
  if (attribute && attribute->is_text()) {
    // "a,b": by the one, then by the other.
    std::string_view left = attribute->text();
    while (true) {
      const size_t comma = std::min(left.find(','), left.size());
      makers.emplace_back(call.interpreter, Value(left.substr(0, comma)), heeds_case);
      if (comma == left.size()) break;
      left.remove_prefix(comma + 1);
    }
  } else {
    makers.emplace_back(call.interpreter, attribute, heeds_case);
  }
  return Value::MakeList(Sorted(ItemsOfInput(call), is_reversed, [&](const Value& item) {
    std::vector<Value> keys;
    for (const KeyMaker& maker : makers) keys.push_back(maker.KeyOf(item));
    return Value::Tuple(std::move(keys));
  }));
}
Value FilterUnique(const FilterCall& call) {
  ArgumentReader reader = call.Reader();
  const bool heeds_case = FlagOf(reader, "case_sensitive");
  const auto attribute = AttributeArgument(reader);
  reader.ExpectEnd();
  const KeyMaker keys(call.interpreter, attribute, heeds_case);
  const Value seen = Value::MakeDict();
  std::vector<Value> unique;
  for (const Value& item : ItemsOfInput(call)) {
    const Value key = keys.KeyOf(item);
    if (seen.dict().Find(key) != nullptr) continue;
    seen.dict().Set(key, Value(true));
    unique.push_back(item);
  }
  return Value::Lazy(std::move(unique));
}
Value FilterMinMax(const FilterCall& call) {
  ArgumentReader reader = call.Reader();
  const bool heeds_case = FlagOf(reader, "case_sensitive");
  const auto attribute = AttributeArgument(reader);
  reader.ExpectEnd();
  const KeyMaker keys(call.interpreter, attribute, heeds_case);
  std::optional<std::pair<Value, Value>> best;
  for (const Value& item : ItemsOfInput(call)) {
    Value key = keys.KeyOf(item);
    const bool is_better = !best || (call.name == "max" ? IsLess(best->first, key)
                                                        : IsLess(key, best->first));
    if (is_better) best.emplace(std::move(key), item);
  }
  if (best) return best->second;
  return Value::Undefined("No aggregated item, sequence was empty.");
}
Value FilterSum(const FilterCall& call) {
  ArgumentReader reader = call.Reader();
  const auto attribute = AttributeArgument(reader);
  Value sum = reader.Take("start", Value(int64_t{0}));
  reader.ExpectEnd();
  const KeyMaker parts(call.interpreter, attribute, /*heeds_case=*/true);
  for (const Value& item : ItemsOfInput(call)) {
    sum = Combine(Operator::kAdd, sum, parts.PlainKeyOf(item));
  }
  return sum;
}
Value FilterBatch(const FilterCall& call) {
  ArgumentReader reader = call.Reader();
  const int64_t size = WholeOf(reader.Take("linecount"), "a batch's size");
  const Value fill = reader.Take("fill_with", Value::None());
  reader.ExpectEnd();
  constexpr int64_t kMostSize = 100'000;
  if (size < 1 || size > kMostSize) Raise("a batch's size is not from 1 to {}", kMostSize);
  std::vector<Value> batches;
  for (Value& item : ItemsOfInput(call)) {
    const bool begins = batches.empty() || std::cmp_equal(batches.back().list().items.size(), size);
    if (begins) batches.push_back(Value::MakeList());
    batches.back().list().items.push_back(std::move(item));
  }
  if (!batches.empty() && !fill.is_none()) {
    batches.back().list().items.resize(static_cast<size_t>(size), fill);
  }
  return Value::Lazy(std::move(batches));
}
Value FilterSlice(const FilterCall& call) {
  ArgumentReader reader = call.Reader();
  const int64_t slices = WholeOf(reader.Take("slices"), "a number of slices");
  const Value fill = reader.Take("fill_with", Value::None());
  reader.ExpectEnd();
  constexpr int64_t kMostSlices = 100'000;
  if (slices < 1 || slices > kMostSlices) Raise("slices are not from 1 to {}", kMostSlices);
  const std::vector<Value> items = ItemsOfInput(call);
  const auto n = static_cast<size_t>(slices);
  const size_t longer = items.size() % n;
  std::vector<Value> parts;
  size_t at = 0;
  for (size_t i = 0; i < n; ++i) {
    const size_t size = items.size() / n + (i < longer ? 1 : 0);
    const auto begin = items.begin() + static_cast<std::ptrdiff_t>(at);
    Value part = Value::MakeList({begin, begin + static_cast<std::ptrdiff_t>(size)});
    if (!fill.is_none() && i >= longer) part.list().items.push_back(fill);
    parts.push_back(std::move(part));
    at += size;
  }
  return Value::Lazy(std::move(parts));
}
Value FilterGroupBy(const FilterCall& call) {
  ArgumentReader reader = call.Reader();
  const Value attribute = reader.Take("attribute");
  const Value otherwise = reader.Take("default", Value::None());
  const bool heeds_case = FlagOf(reader, "case_sensitive");
  reader.ExpectEnd();
  const KeyMaker keys(call.interpreter, attribute, heeds_case,
                      otherwise.is_none() ? std::nullopt : std::optional(otherwise));
  const auto key_of = [&keys](const Value& item) { return keys.KeyOf(item); };
  std::vector<Value> groups;
  std::optional<Value> last;
  for (const Value& item : Sorted(ItemsOfInput(call), /*is_reversed=*/false, key_of)) {
    Value key = key_of(item);
    if (!last || !AreEqual(*last, key)) {
      // The name of a group is as its first item has it.
      groups.push_back(Value::MakeList({keys.PlainKeyOf(item), Value::MakeList()},
                                       List::Form::kGroup));
      last = std::move(key);
    }
    groups.back().list().items[1].list().items.push_back(item);
  }
  return Value::MakeList(std::move(groups));
}

Value FilterMap(const FilterCall& call) {
  std::vector<Value> mapped;
  Arguments& arguments = call.arguments;
  if (arguments.values.empty()) {
    ArgumentReader reader = call.Reader();
    const Value attribute = reader.Take("attribute");
    const auto otherwise = reader.TakeIfGiven("default");
    reader.ExpectEnd();
    const std::vector<Value> path = AttributePath(attribute);
    for (Value& item : ItemsIfTrue(call)) {
      mapped.push_back(AttributeAt(call.interpreter, std::move(item), path, otherwise));
    }
    return Value::Lazy(std::move(mapped));
  }
  const std::string filter = TextOf(arguments.values.front());
  for (const Value& item : ItemsIfTrue(call)) {
    Arguments rest{.values = {arguments.values.begin() + 1, arguments.values.end()},
                   .named = arguments.named};
    mapped.push_back(ApplyFilter(call.interpreter, filter, item, rest));
  }
  return Value::Lazy(std::move(mapped));
}
// select, reject, selectattr, rejectattr.
Value FilterSelect(const FilterCall& call) {
  const bool keeps = call.name.starts_with("select");
  std::vector<Value> left = call.arguments.values;
  std::vector<Value> path;
  if (call.name.ends_with("attr")) {
    if (left.empty()) Raise("{}() is missing the attribute's name", call.name);
    path = AttributePath(left.front());
    left.erase(left.begin());
  }
  std::vector<Value> selected;
  for (const Value& item : ItemsIfTrue(call)) {
    const Value tested = AttributeAt(call.interpreter, item, path, std::nullopt);
    bool passes = false;
    if (left.empty()) {
      passes = IsTrue(tested);
    } else {
      Arguments rest{.values = {left.begin() + 1, left.end()}, .named = call.arguments.named};
      passes = ApplyTest(TextOf(left.front()), tested, rest);
    }
    if (passes == keeps) selected.push_back(item);
  }
  return Value::Lazy(std::move(selected));
}

// --- Dicts and the rest.

Value FilterItems(const FilterCall& call) {
  call.ExpectNoArguments();
  if (call.input.is_undefined()) return Value::Lazy({});
  if (!call.input.is_dict()) Raise("Can only get item pairs from a mapping.");
  std::vector<Value> items;
  for (const auto& [key, value] : call.input.dict().members()) {
    items.push_back(Value::Tuple({key, value}));
  }
  return Value::Lazy(std::move(items));
}
Value FilterDictSort(const FilterCall& call) {
  ArgumentReader reader = call.Reader();
  const bool heeds_case = FlagOf(reader, "case_sensitive");
  const std::string by = TextOf(reader.Take("by", Value("key")));
  const bool is_reversed = FlagOf(reader, "reverse");
  reader.ExpectEnd();
  if (by != "key" && by != "value") Raise("You can only sort by either \"key\" or \"value\"");
  if (!call.input.is_dict()) Raise("'{}' object has no attribute 'items'", TypeName(call.input));
  std::vector<Value> items;
  for (const auto& [key, value] : call.input.dict().members()) {
    items.push_back(Value::Tuple({key, value}));
  }
  const KeyMaker keys(call.interpreter, std::nullopt, heeds_case);
  return Value::MakeList(Sorted(items, is_reversed, [&](const Value& item) {
    return keys.KeyOf(item.list().items[by == "key" ? 0 : 1]);
  }));
}
Value FilterDefault(const FilterCall& call) {
  ArgumentReader reader = call.Reader();
  Value otherwise = reader.Take("default_value", Value(""));
  const bool replaces_false = FlagOf(reader, "boolean");
  reader.ExpectEnd();
  const bool is_missing = call.input.is_undefined() || (replaces_false && !IsTrue(call.input));
  return is_missing ? std::move(otherwise) : call.input;
}
Value FilterAttr(const FilterCall& call) {
  ArgumentReader reader = call.Reader();
  const std::string name = TextOf(reader.Take("name"));
  reader.ExpectEnd();
  if (call.input.is_undefined()) Raise("{}", call.input.why_undefined());
  // Keys of a dict are no attributes.
  if (call.input.is_dict() && !HasMethod(call.input, name)) {
    return Value::Undefined(Format("'dict object' has no attribute '{}'", name));
  }
  return call.interpreter.GetAttribute(call.input, name);
}
Value FilterToJson(const FilterCall& call) {
  ArgumentReader reader = call.Reader();
  JsonStyle style;
  style.escapes_beyond_ascii = FlagOf(reader, "ensure_ascii");
  const Value indent = reader.Take("indent", Value::None());
  const Value separators = reader.Take("separators", Value::None());
  style.sorts_keys = FlagOf(reader, "sort_keys");
  reader.ExpectEnd();
  if (!indent.is_none()) {
    constexpr int64_t kMostIndent = 1000;
    style.has_lines = true;
    style.behind_item = ",";
    style.indent = indent.is_text()
                       ? indent.text()
                       : std::string(static_cast<size_t>(std::clamp<int64_t>(
                                         WholeOf(indent, "an indent"), 0, kMostIndent)),
                                     ' ');
  }
  if (!separators.is_none()) {
    const std::vector<Value> pair = ItemsOf(separators);
    if (pair.size() != 2) Raise("separators are not two texts");
    style.behind_item = TextOf(pair[0]);
    style.behind_key = TextOf(pair[1]);
  }
  return Value(WriteJson(call.input, style));
}
Value FilterPrettyPrint(const FilterCall& call) {
  call.ExpectNoArguments();
  return Value(ReprOf(call.input));
}

using Filter = Value (*)(const FilterCall&);

const std::unordered_map<std::string_view, Filter>& Filters() {
  static const std::unordered_map<std::string_view, Filter> filters{
      {"abs", FilterAbs},
      {"attr", FilterAttr},
      {"batch", FilterBatch},
      {"capitalize", FilterCapitalize},
      {"center", FilterCenter},
      {"count", FilterLength},
      {"d", FilterDefault},
      {"default", FilterDefault},
      {"dictsort", FilterDictSort},
      {"e", FilterEscape},
      {"escape", FilterEscape},
      {"first", FilterFirst},
      {"float", FilterFloat},
      {"forceescape", FilterEscape},
      {"format", FilterFormat},
      {"groupby", FilterGroupBy},
      {"indent", FilterIndent},
      {"int", FilterInt},
      {"items", FilterItems},
      {"join", FilterJoin},
      {"last", FilterLast},
      {"length", FilterLength},
      {"list", FilterList},
      {"lower", FilterLower},
      {"map", FilterMap},
      {"max", FilterMinMax},
      {"min", FilterMinMax},
      {"pprint", FilterPrettyPrint},
      {"reject", FilterSelect},
      {"rejectattr", FilterSelect},
      {"replace", FilterReplace},
      {"reverse", FilterReverse},
      {"round", FilterRound},
      {"safe", FilterSafe},
      {"select", FilterSelect},
      {"selectattr", FilterSelect},
      {"slice", FilterSlice},
      {"sort", FilterSort},
      {"string", FilterString},
      {"sum", FilterSum},
      {"title", FilterTitle},
      {"tojson", FilterToJson},
      {"trim", FilterTrim},
      {"truncate", FilterTruncate},
      {"unique", FilterUnique},
      {"upper", FilterUpper},
      {"urlencode", FilterUrlEncode},
      {"wordcount", FilterWordCount},
  };
  return filters;
}

}  // namespace

bool HasFilter(std::string_view name) { return Filters().contains(name); }

Value ApplyFilter(Interpreter& interpreter, std::string_view name, const Value& input,
                  Arguments& arguments) {
  const auto found = Filters().find(name);
  if (found == Filters().end()) Raise("no filter is named '{}'", name);
  return found->second(
      {.interpreter = interpreter, .input = input, .arguments = arguments, .name = found->first});
}

}  // namespace moestro::jinja
