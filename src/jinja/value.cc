// SPDX-License-Identifier: MIT
#include "jinja/value.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "jinja/characters.h"
#include "jinja/failure.h"
#include "jinja/object.h"

namespace moestro::jinja {
namespace {

constexpr size_t kFewKeys = 16;  // without an index
// A float's value as int if it is whole and fits: such a float is hashed and compared as an int.
std::optional<int64_t> AsInteger(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kBool:
      return value.boolean() ? 1 : 0;
    case Value::Kind::kInt:
      return value.integer();
    case Value::Kind::kFloat: {
      constexpr double kEdge = 9223372036854775808.0;  // 2^63
      const double real = value.real();
      if (real >= -kEdge && real < kEdge && std::floor(real) == real)
        return static_cast<int64_t>(real);
      return std::nullopt;
    }
    default:
      return std::nullopt;
  }
}

bool AreEqualAt(const Value& a, const Value& b, int level);

bool AreDictsEqual(const Dict& a, const Dict& b, int level) {
  if (a.size() != b.size()) return false;
  return std::ranges::all_of(a.members(), [&](const auto& member) {
    const Value* other = b.Find(member.first);
    return other != nullptr && AreEqualAt(member.second, *other, level + 1);
  });
}

// Keys, or items, of two dicts are equal in any order.
bool AreViewsEqual(const List& a, const List& b, int level) {
  const bool are_sets =
      a.form == b.form && (a.form == ListForm::kKeys || a.form == ListForm::kItems);
  if (!are_sets || a.items.size() != b.items.size()) return false;
  return std::ranges::all_of(a.items, [&](const Value& item) {
    return std::ranges::any_of(
        b.items, [&](const Value& other) { return AreEqualAt(item, other, level + 1); });
  });
}

bool AreEqualAt(const Value& a, const Value& b, int level) {
  CheckValueLevel(level);
  if (a.is_number() && b.is_number()) {
    const auto whole_a = AsInteger(a);
    const auto whole_b = AsInteger(b);
    if (whole_a && whole_b) return *whole_a == *whole_b;
    if (a.kind() == Value::Kind::kBigInt && b.kind() == Value::Kind::kBigInt)
      return a.digits() == b.digits();
    return !whole_a && !whole_b && RealOf(a) == RealOf(b);
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Value::Kind::kUndefined:
    case Value::Kind::kNone:
      return true;
    case Value::Kind::kText:
      return a.text() == b.text();
    case Value::Kind::kList: {
      if (Value::AreSame(a, b)) return true;
      if (!a.has_places() || !b.has_places()) return AreViewsEqual(a.list(), b.list(), level);
      if (TypeName(a) != TypeName(b)) return false;
      return std::ranges::equal(
          a.list().items, b.list().items,
          [&](const Value& x, const Value& y) { return AreEqualAt(x, y, level + 1); });
    }
    case Value::Kind::kDict:
      return Value::AreSame(a, b) || AreDictsEqual(a.dict(), b.dict(), level);
    default:
      return Value::AreSame(a, b);
  }
}

size_t HashAt(const Value& value, int level) {
  CheckValueLevel(level);
  if (const auto whole = AsInteger(value)) return std::hash<int64_t>()(*whole);
  switch (value.kind()) {
    case Value::Kind::kBigInt:
      return std::hash<std::string>()(value.digits());
    case Value::Kind::kFloat:
      return std::hash<double>()(value.real());
    case Value::Kind::kText:
      return std::hash<std::string>()(value.text());
    case Value::Kind::kList: {
      if (!value.is_tuple()) Raise("unhashable type: '{}'", TypeName(value));
      size_t hash = value.list().items.size();
      for (const Value& item : value.list().items) hash = hash * 31 + HashAt(item, level + 1);
      return hash;
    }
    case Value::Kind::kDict:
      Raise("unhashable type: 'dict'");
    case Value::Kind::kObject:
      return std::hash<const void*>()(&value.object());
    default:
      return static_cast<size_t>(value.kind());
  }
}

std::string_view ListTypeName(ListForm form) {
  switch (form) {
    case ListForm::kList:
      return "list";
    case ListForm::kTuple:
    case ListForm::kGroup:
      return "tuple";
    case ListForm::kRange:
      return "range";
    case ListForm::kLazy:
      return "generator";
    case ListForm::kKeys:
      return "dict_keys";
    case ListForm::kValues:
      return "dict_values";
    case ListForm::kItems:
      return "dict_items";
  }
  return "list";
}

}  // namespace

void FreeAll(std::vector<Value> doomed) {
  while (!doomed.empty()) {
    Value last = std::move(doomed.back());
    doomed.pop_back();
    last.Unload(doomed);
  }
}

List::~List() { FreeAll(std::move(items)); }

Dict::~Dict() { Clear(); }

void Dict::Unload(std::vector<Value>& to) {
  for (auto& [key, value] : members_) {
    to.push_back(std::move(key));
    to.push_back(std::move(value));
  }
  members_.clear();
  index_.clear();
}

void Dict::Clear() {
  std::vector<Value> doomed;
  Unload(doomed);
  FreeAll(std::move(doomed));
}

void Dict::BuildIndex() const {
  index_.clear();
  for (size_t i = 0; i < members_.size(); ++i) index_.emplace(HashOf(members_[i].first), i);
}

std::optional<size_t> Dict::PlaceOf(const Value& key) const {
  const size_t hash = HashOf(key);
  if (members_.size() <= kFewKeys) {
    for (size_t i = 0; i < members_.size(); ++i) {
      if (AreEqual(members_[i].first, key)) return i;
    }
    return std::nullopt;
  }
  if (index_.empty()) BuildIndex();
  const auto [first, last] = index_.equal_range(hash);
  for (auto i = first; i != last; ++i) {
    if (AreEqual(members_[i->second].first, key)) return i->second;
  }
  return std::nullopt;
}

const Value* Dict::Find(const Value& key) const {
  const auto place = PlaceOf(key);
  return place ? &members_[*place].second : nullptr;
}

const Value* Dict::Find(std::string_view key) const {
  if (members_.size() > kFewKeys) return Find(Value(key));
  for (const auto& [name, value] : members_) {
    if (name.is_text() && name.text() == key) return &value;
  }
  return nullptr;
}

void Dict::Set(const Value& key, Value value) {
  if (const auto place = PlaceOf(key)) {
    members_[*place].second = std::move(value);
    return;
  }
  if (!index_.empty()) index_.emplace(HashOf(key), members_.size());
  members_.emplace_back(key, std::move(value));
}

void Dict::Set(std::string_view key, Value value) { Set(Value(key), std::move(value)); }

std::optional<Value> Dict::Take(const Value& key) {
  const auto place = PlaceOf(key);
  if (!place) return std::nullopt;
  Value taken = std::move(members_[*place].second);
  members_.erase(members_.begin() + static_cast<std::ptrdiff_t>(*place));
  index_.clear();
  return taken;
}

Value::Value(std::string bytes) : held_(std::make_shared<const Text>(Text{std::move(bytes)})) {
  if (text().size() > kMostTextBytes) Raise("a text of more than {} bytes", kMostTextBytes);
}

Value Value::Undefined(std::string why) {
  Value value;
  value.held_ = Missing{std::make_shared<const std::string>(std::move(why))};
  return value;
}

Value Value::None() {
  Value value;
  value.held_ = Nothing{};
  return value;
}

Value Value::BigInt(std::string digits) {
  Value value;
  value.held_ = Digits{std::make_shared<const std::string>(std::move(digits))};
  return value;
}

Value Value::EscapedText(std::string bytes) {
  Value value;
  value.held_ = std::make_shared<const Text>(Text{.bytes = std::move(bytes), .is_escaped = true});
  return value;
}

Value Value::MakeList(std::vector<Value> items, ListForm form) {
  Value value;
  value.held_ = std::make_shared<List>(std::move(items), form);
  return value;
}

Value Value::MakeDict() { return Value(std::make_shared<Dict>()); }

bool Value::is_lazy() const { return is_list() && list().form == ListForm::kLazy; }

bool Value::is_tuple() const {
  return is_list() && (list().form == ListForm::kTuple || list().form == ListForm::kGroup);
}

bool Value::has_places() const {
  return is_tuple() ||
         (is_list() && (list().form == ListForm::kList || list().form == ListForm::kRange));
}

bool Value::is_number() const {
  switch (kind()) {
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kBigInt:
    case Kind::kFloat:
      return true;
    default:
      return false;
  }
}

const std::string& Value::digits() const { return *std::get<Digits>(held_).digits; }

const std::string& Value::text() const {
  return std::get<std::shared_ptr<const Text>>(held_)->bytes;
}

bool Value::is_escaped() const {
  return is_text() && std::get<std::shared_ptr<const Text>>(held_)->is_escaped;
}

std::string Value::why_undefined() const {
  const auto& why = std::get<Missing>(held_).why;
  return why ? *why : "a value is undefined";
}

void Value::Unload(std::vector<Value>& to) {
  if (const auto* list = std::get_if<std::shared_ptr<List>>(&held_)) {
    if (list->use_count() == 1) UnloadShared(to);
  } else if (const auto* dict = std::get_if<std::shared_ptr<Dict>>(&held_)) {
    if (dict->use_count() == 1) UnloadShared(to);
  } else if (const auto* object = std::get_if<std::shared_ptr<Object>>(&held_)) {
    if (object->use_count() == 1) UnloadShared(to);
  }
}

void Value::UnloadShared(std::vector<Value>& to) {
  if (is_list()) {
    std::ranges::move(list().items, std::back_inserter(to));
    list().items.clear();
  } else if (is_dict()) {
    dict().Unload(to);
  } else if (is_object()) {
    object().Unload(to);
  }
}

bool Value::AreSame(const Value& a, const Value& b) {
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kList:
      return &a.list() == &b.list();
    case Kind::kDict:
      return &a.dict() == &b.dict();
    case Kind::kObject:
      return &a.object() == &b.object();
    default:
      return AreEqual(a, b);
  }
}

bool IsTrue(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kUndefined:
    case Value::Kind::kNone:
      return false;
    case Value::Kind::kBool:
      return value.boolean();
    case Value::Kind::kInt:
      return value.integer() != 0;
    case Value::Kind::kFloat:
      return value.real() != 0.0;
    case Value::Kind::kText:
      return !value.text().empty();
    case Value::Kind::kList:
      return value.is_lazy() || !value.list().items.empty();
    case Value::Kind::kDict:
      return value.dict().size() > 0;
    case Value::Kind::kBigInt:
    case Value::Kind::kObject:
      return true;
  }
  return true;
}

bool AreEqual(const Value& a, const Value& b) { return AreEqualAt(a, b, 0); }

bool IsLess(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    const auto whole_a = AsInteger(a);
    const auto whole_b = AsInteger(b);
    return whole_a && whole_b ? *whole_a < *whole_b : RealOf(a) < RealOf(b);
  }
  if (a.is_text() && b.is_text()) return a.text() < b.text();
  if (a.has_places() && b.has_places() && TypeName(a) == TypeName(b) && TypeName(a) != "range") {
    const auto& x = a.list().items;
    const auto& y = b.list().items;
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!AreEqual(x[i], y[i])) return IsLess(x[i], y[i]);
    }
    return x.size() < y.size();
  }
  for (const Value* value : {&a, &b}) {
    if (value->is_undefined()) Raise("{}", value->why_undefined());
  }
  Raise("'<' not supported between instances of '{}' and '{}'", TypeName(a), TypeName(b));
}

size_t HashOf(const Value& value) { return HashAt(value, 0); }

std::string_view TypeName(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kUndefined:
      return "Undefined";
    case Value::Kind::kNone:
      return "NoneType";
    case Value::Kind::kBool:
      return "bool";
    case Value::Kind::kInt:
    case Value::Kind::kBigInt:
      return "int";
    case Value::Kind::kFloat:
      return "float";
    case Value::Kind::kText:
      return "str";
    case Value::Kind::kList:
      return ListTypeName(value.list().form);
    case Value::Kind::kDict:
      return "dict";
    case Value::Kind::kObject:
      return value.object().type_name();
  }
  return "object";
}

std::vector<Value> ItemsOf(const Value& value) {
  std::vector<Value> items;
  switch (value.kind()) {
    case Value::Kind::kUndefined:
      break;
    case Value::Kind::kText:
      for (const std::string_view c : SplitCharacters(value.text())) items.emplace_back(c);
      break;
    case Value::Kind::kList:
      if (value.is_lazy()) return std::exchange(value.list().items, {});
      return value.list().items;
    case Value::Kind::kDict:
      for (const auto& [key, member] : value.dict().members()) items.push_back(key);
      break;
    default:
      Raise("'{}' object is not iterable", TypeName(value));
  }
  return items;
}

bool IsIterable(const Value& value) {
  return value.is_undefined() || value.is_text() || value.is_list() || value.is_dict();
}

size_t LengthOf(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kUndefined:
      return 0;
    case Value::Kind::kText:
      return CountCharacters(value.text());
    case Value::Kind::kList:
      if (!value.is_lazy()) return value.list().items.size();
      break;
    case Value::Kind::kDict:
      return value.dict().size();
    default:
      break;
  }
  Raise("object of type '{}' has no len()", TypeName(value));
}

void CheckValueLevel(int level) {
  constexpr int kMostLevels = 200;
  if (level > kMostLevels) Raise("values are nested deeper than {} levels", kMostLevels);
}

}  // namespace moestro::jinja
