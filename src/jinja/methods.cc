// SPDX-License-Identifier: MIT
// Python's methods of dicts and lists, and the tables of all. Lists and dicts may be changed in
// place: transformers' sandbox refuses that, but published templates do it.
#include "jinja/methods.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <utility>

namespace moestro::jinja {
namespace {

// --- Dicts.

Value DictGet(const MethodCall& call) {
  ArgumentReader reader = call.Reader();
  const Value key = reader.Take("key");
  Value otherwise = reader.Take("default", Value::None());
  reader.ExpectEnd();
  const Value* found = call.self.dict().Find(key);
  return found != nullptr ? *found : std::move(otherwise);
}
Value DictKeys(const MethodCall& call) {
  call.ExpectNoArguments();
  return Value::MakeList(ItemsOf(call.self), ListForm::kKeys);
}
Value DictValues(const MethodCall& call) {
  call.ExpectNoArguments();
  std::vector<Value> values;
  for (const auto& [key, value] : call.self.dict().members()) values.push_back(value);
  return Value::MakeList(std::move(values), ListForm::kValues);
}
Value DictItems(const MethodCall& call) {
  call.ExpectNoArguments();
  std::vector<Value> items;
  for (const auto& [key, value] : call.self.dict().members()) {
    items.push_back(Value::Tuple({key, value}));
  }
  return Value::MakeList(std::move(items), ListForm::kItems);
}
Value DictCopy(const MethodCall& call) {
  call.ExpectNoArguments();
  Value copy = Value::MakeDict();
  for (const auto& [key, value] : call.self.dict().members()) copy.dict().Set(key, value);
  return copy;
}
Value DictUpdate(const MethodCall& call) {
  Dict& dict = call.self.dict();
  for (const Value& more : call.arguments.values) {
    if (!more.is_dict()) Raise("update() takes a dict, not a '{}'", TypeName(more));
    const auto members = more.dict().members();  // a copy, since `more` may be the same dict
    for (const auto& [key, value] : members) {
      call.interpreter.NoteChange(call.self, value);
      dict.Set(key, value);
    }
  }
  for (const auto& [name, value] : call.arguments.named) {
    call.interpreter.NoteChange(call.self, value);
    dict.Set(name, value);
  }
  return Value::None();
}
Value DictSetDefault(const MethodCall& call) {
  ArgumentReader reader = call.Reader();
  const Value key = reader.Take("key");
  Value otherwise = reader.Take("default", Value::None());
  reader.ExpectEnd();
  if (const Value* found = call.self.dict().Find(key)) return *found;
  call.interpreter.NoteChange(call.self, otherwise);
  call.self.dict().Set(key, otherwise);
  return otherwise;
}
Value DictPop(const MethodCall& call) {
  ArgumentReader reader = call.Reader();
  const Value key = reader.Take("key");
  const auto otherwise = reader.TakeIfGiven("default");
  reader.ExpectEnd();
  if (auto taken = call.self.dict().Take(key)) return *std::move(taken);
  if (otherwise) return *otherwise;
  Raise("the dict has no key {}", ReprOf(key));
}
Value DictPopItem(const MethodCall& call) {
  call.ExpectNoArguments();
  Dict& dict = call.self.dict();
  if (dict.size() == 0) Raise("popitem(): dictionary is empty");
  const Value key = dict.members().back().first;
  return Value::Tuple({key, *dict.Take(key)});
}
Value DictClear(const MethodCall& call) {
  call.ExpectNoArguments();
  call.self.dict().Clear();
  return Value::None();
}

const MethodTable& DictMethods() {
  static const MethodTable methods{
      {"popitem", DictPopItem}, {"clear", DictClear},           {"copy", DictCopy},
      {"get", DictGet},         {"items", DictItems},           {"keys", DictKeys},
      {"pop", DictPop},         {"setdefault", DictSetDefault}, {"update", DictUpdate},
      {"values", DictValues},
  };
  return methods;
}

// --- Lists.

std::vector<Value>& ItemsIn(const MethodCall& call) { return call.self.list().items; }

Value ListAppend(const MethodCall& call) {
  ArgumentReader reader = call.Reader();
  Value item = reader.Take("object");
  reader.ExpectEnd();
  call.interpreter.NoteChange(call.self, item);
  ItemsIn(call).push_back(std::move(item));
  return Value::None();
}
Value ListExtend(const MethodCall& call) {
  ArgumentReader reader = call.Reader();
  const std::vector<Value> more = ItemsOf(reader.Take("iterable"));
  reader.ExpectEnd();
  for (const Value& item : more) call.interpreter.NoteChange(call.self, item);
  ItemsIn(call).insert(ItemsIn(call).end(), more.begin(), more.end());
  return Value::None();
}
// The place of an index, which counts from the end if it is negative.
std::ptrdiff_t PlaceIn(const std::vector<Value>& items, int64_t index) {
  const auto size = static_cast<int64_t>(items.size());
  return static_cast<std::ptrdiff_t>(
      std::clamp<int64_t>(index < 0 ? std::max<int64_t>(index, -size) + size : index, 0, size));
}
Value ListInsert(const MethodCall& call) {
  ArgumentReader reader = call.Reader();
  const int64_t index = WholeOf(reader.Take("index"), "an index");
  Value item = reader.Take("object");
  reader.ExpectEnd();
  call.interpreter.NoteChange(call.self, item);
  std::vector<Value>& items = ItemsIn(call);
  items.insert(items.begin() + PlaceIn(items, index), std::move(item));
  return Value::None();
}
Value ListPop(const MethodCall& call) {
  ArgumentReader reader = call.Reader();
  int64_t index = WholeOf(reader.Take("index", Value(int64_t{-1})), "an index");
  reader.ExpectEnd();
  std::vector<Value>& items = ItemsIn(call);
  if (index < 0) index += static_cast<int64_t>(items.size());
  if (index < 0 || std::cmp_greater_equal(index, items.size())) Raise("pop index out of range");
  Value taken = std::move(items[static_cast<size_t>(index)]);
  items.erase(items.begin() + static_cast<std::ptrdiff_t>(index));
  return taken;
}
Value ListRemove(const MethodCall& call) {
  ArgumentReader reader = call.Reader();
  const Value item = reader.Take("value");
  reader.ExpectEnd();
  std::vector<Value>& items = ItemsIn(call);
  const auto found =
      std::ranges::find_if(items, [&item](const Value& other) { return AreEqual(item, other); });
  if (found == items.end()) Raise("the list has no item {}", ReprOf(item));
  items.erase(found);
  return Value::None();
}
Value ListReverse(const MethodCall& call) {
  call.ExpectNoArguments();
  std::ranges::reverse(ItemsIn(call));
  return Value::None();
}
Value ListSort(const MethodCall& call) {
  ArgumentReader reader = call.Reader();
  const bool is_reversed = IsTrue(reader.Take("reverse", Value(false)));
  reader.ExpectEnd();
  // Sorted aside: a comparison may fail.
  std::vector<Value> sorted = ItemsIn(call);
  std::ranges::stable_sort(sorted, [is_reversed](const Value& a, const Value& b) {
    return is_reversed ? IsLess(b, a) : IsLess(a, b);
  });
  ItemsIn(call) = std::move(sorted);
  return Value::None();
}
Value ListClear(const MethodCall& call) {
  call.ExpectNoArguments();
  ItemsIn(call).clear();
  return Value::None();
}
Value ListCopy(const MethodCall& call) {
  call.ExpectNoArguments();
  return Value::MakeList(ItemsIn(call));
}
Value ListCount(const MethodCall& call) {
  ArgumentReader reader = call.Reader();
  const Value item = reader.Take("value");
  reader.ExpectEnd();
  return CountValue(static_cast<size_t>(std::ranges::count_if(
      ItemsIn(call), [&item](const Value& other) { return AreEqual(item, other); })));
}
Value ListIndex(const MethodCall& call) {
  ArgumentReader reader = call.Reader();
  const Value item = reader.Take("value");
  reader.ExpectEnd();
  const std::vector<Value>& items = ItemsIn(call);
  const auto found =
      std::ranges::find_if(items, [&item](const Value& other) { return AreEqual(item, other); });
  if (found == items.end()) Raise("{} is not in list", ReprOf(item));
  return CountValue(static_cast<size_t>(found - items.begin()));
}

const MethodTable& TupleMethods() {
  static const MethodTable methods{{"count", ListCount}, {"index", ListIndex}};
  return methods;
}
const MethodTable& ListMethods() {
  static const MethodTable methods{
      {"append", ListAppend},   {"clear", ListClear},   {"copy", ListCopy},
      {"count", ListCount},     {"extend", ListExtend}, {"index", ListIndex},
      {"insert", ListInsert},   {"pop", ListPop},       {"remove", ListRemove},
      {"reverse", ListReverse}, {"sort", ListSort},
  };
  return methods;
}

// --- Numbers.

Value NumberBitLength(const MethodCall& call) {
  call.ExpectNoArguments();
  if (call.self.kind() == Value::Kind::kFloat)
    Raise("'float' object has no attribute 'bit_length'");
  const auto whole = WholeOf(call.self, "a number of bit_length()");
  const auto bits = whole < 0 ? 0 - static_cast<uint64_t>(whole) : static_cast<uint64_t>(whole);
  return CountValue(static_cast<size_t>(std::bit_width(bits)));
}
Value NumberIsInteger(const MethodCall& call) {
  call.ExpectNoArguments();
  if (call.self.kind() != Value::Kind::kFloat) return Value(true);
  return Value(std::isfinite(call.self.real()) && std::trunc(call.self.real()) == call.self.real());
}

const MethodTable& NumberMethods() {
  static const MethodTable methods{{"bit_length", NumberBitLength},
                                   {"is_integer", NumberIsInteger}};
  return methods;
}

// null: the value has no methods.
const MethodTable* MethodsOf(const Value& value) {
  if (value.is_text()) return &TextMethods();
  if (value.is_dict()) return &DictMethods();
  if (value.is_number()) return &NumberMethods();
  if (!value.has_places()) return nullptr;
  return value.list().form == List::Form::kList ? &ListMethods() : &TupleMethods();
}

// A method's result for an escaped text is escaped, too.
Value AsEscaped(const Value& value) {
  if (value.is_text()) return Value::EscapedText(value.text());
  if (!value.is_list()) return value;
  std::vector<Value> parts;
  for (const Value& part : value.list().items) parts.push_back(AsEscaped(part));
  return Value::MakeList(std::move(parts), value.list().form);
}

}  // namespace

bool HasMethod(const Value& value, std::string_view name) {
  const MethodTable* methods = MethodsOf(value);
  return methods != nullptr && methods->contains(name);
}

Value CallMethod(Interpreter& interpreter, const Value& self, std::string_view name,
                 Arguments& arguments) {
  const auto method = MethodsOf(self)->find(name);
  const Value made = method->second(
      {.interpreter = interpreter, .self = self, .arguments = arguments, .name = method->first});
  return self.is_escaped() ? AsEscaped(made) : made;
}

}  // namespace moestro::jinja
