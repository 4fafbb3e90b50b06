// SPDX-License-Identifier: MIT
// Jinja's filters of lists and dicts.
#include <algorithm>
#include <charconv>
#include <optional>

#include "jinja/characters.h"
#include "jinja/filters.h"

namespace moestro::jinja {
namespace {

std::vector<Value> ItemsOfInput(const FilterCall& call) { return ItemsOf(call.input); }
// Items for filters that leave a false input alone.
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

// The key by which an item is compared: an attribute or the item itself, perhaps in lower case.
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

// The items in the order of keys. Items with equal keys keep their order, also when the order is
// reversed.
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
  return WithEscapesOf(call.input, std::move(text));
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
    // "a,b": by a, then by b
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
    const bool is_better =
        !best || (call.name == "max" ? IsLess(best->first, key) : IsLess(key, best->first));
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
      // A group's name is its first item's key, unchanged.
      groups.push_back(
          Value::MakeList({keys.PlainKeyOf(item), Value::MakeList()}, List::Form::kGroup));
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

// --- Dicts.

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

}  // namespace

const FilterTable& ListFilters() {
  static const FilterTable filters{
      {"batch", FilterBatch},     {"count", FilterLength},    {"dictsort", FilterDictSort},
      {"first", FilterFirst},     {"groupby", FilterGroupBy}, {"items", FilterItems},
      {"join", FilterJoin},       {"last", FilterLast},       {"length", FilterLength},
      {"list", FilterList},       {"map", FilterMap},         {"max", FilterMinMax},
      {"min", FilterMinMax},      {"reject", FilterSelect},   {"rejectattr", FilterSelect},
      {"reverse", FilterReverse}, {"select", FilterSelect},   {"selectattr", FilterSelect},
      {"slice", FilterSlice},     {"sort", FilterSort},       {"sum", FilterSum},
      {"unique", FilterUnique},
  };
  return filters;
}

}  // namespace moestro::jinja
