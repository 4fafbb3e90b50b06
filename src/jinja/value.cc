// SPDX-License-Identifier: MIT
#include "jinja/value.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <functional>
#include <limits>

#include "jinja/characters.h"
#include "jinja/failure.h"
#include "jinja/object.h"

namespace moestro::jinja {
namespace {

constexpr size_t kFewKeys = 16;  // without an index
// Levels of values within values that are compared or printed; a list may hold itself.
constexpr int kMostValueLevels = 200;

void CheckLevel(int level) {
  if (level > kMostValueLevels) Raise("values are nested deeper than {} levels", kMostValueLevels);
}

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

bool AreEqualAt(const Value& a, const Value& b, int level) {
  CheckLevel(level);
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
      if (a.is_tuple() != b.is_tuple() || a.is_lazy() || b.is_lazy()) return false;
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
  CheckLevel(level);
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

// Python's repr() of a text: quotes are single unless only single ones are inside.
void AppendQuoted(std::string& to, std::string_view text) {
  const bool has_single = text.contains('\'');
  const char quote = has_single && !text.contains('"') ? '"' : '\'';
  to += quote;
  while (!text.empty()) {
    const Character c = FirstCharacter(text);
    const std::string_view bytes = text.substr(0, c.bytes);
    text.remove_prefix(c.bytes);
    if (c.code_point == '\n') {
      to += "\\n";
    } else if (c.code_point == '\r') {
      to += "\\r";
    } else if (c.code_point == '\t') {
      to += "\\t";
    } else if (c.code_point == '\\' || c.code_point == static_cast<unsigned char>(quote)) {
      to += '\\';
      to += bytes;
    } else if (c.code_point < 0x20 || (c.code_point >= 0x7f && c.code_point < 0xa1) ||
               c.code_point == 0xad) {
      to += Format("\\x{:02x}", c.code_point);
    } else {
      to += bytes;
    }
  }
  to += quote;
}

void AppendRepr(std::string& to, const Value& value, int level);

void AppendList(std::string& to, const Value& value, int level) {
  const List& list = value.list();
  if (list.form == List::Form::kLazy) {
    to += "<generator object>";
    return;
  }
  if (list.form == List::Form::kRange) {
    const std::vector<Value>& items = list.items;
    const int64_t first = items.empty() ? 0 : items.front().integer();
    const int64_t step = items.size() < 2 ? 1 : items[1].integer() - first;
    const int64_t end = items.empty() ? 0 : items.back().integer() + step;
    to += step == 1 ? Format("range({}, {})", first, end)
                    : Format("range({}, {}, {})", first, end, step);
    return;
  }
  to += value.is_tuple() ? '(' : '[';
  bool is_first = true;
  for (const Value& item : list.items) {
    if (!is_first) to += ", ";
    is_first = false;
    AppendRepr(to, item, level + 1);
  }
  if (value.is_tuple() && list.items.size() == 1) to += ',';
  to += value.is_tuple() ? ')' : ']';
}

void AppendRepr(std::string& to, const Value& value, int level) {
  CheckLevel(level);
  if (to.size() > kMostTextBytes) Raise("a text of more than {} bytes", kMostTextBytes);
  switch (value.kind()) {
    case Value::Kind::kUndefined:
      to += "Undefined";
      break;
    case Value::Kind::kNone:
      to += "None";
      break;
    case Value::Kind::kBool:
      to += value.boolean() ? "True" : "False";
      break;
    case Value::Kind::kInt:
      to += std::to_string(value.integer());
      break;
    case Value::Kind::kBigInt:
      to += value.digits();
      break;
    case Value::Kind::kFloat:
      to += TextOfReal(value.real());
      break;
    case Value::Kind::kText:
      AppendQuoted(to, value.text());
      break;
    case Value::Kind::kList:
      AppendList(to, value, level);
      break;
    case Value::Kind::kDict: {
      to += '{';
      bool is_first = true;
      for (const auto& [key, member] : value.dict().members()) {
        if (!is_first) to += ", ";
        is_first = false;
        AppendRepr(to, key, level + 1);
        to += ": ";
        AppendRepr(to, member, level + 1);
      }
      to += '}';
      break;
    }
    case Value::Kind::kObject:
      to += Format("<{} object>", value.object().type_name());
      break;
  }
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
  if (a.is_list() && b.is_list() && a.is_tuple() == b.is_tuple() && !a.is_lazy() && !b.is_lazy()) {
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

std::string TextOf(const Value& value) {
  if (value.is_text()) return value.text();
  if (value.is_undefined()) return {};
  return ReprOf(value);
}

std::string ReprOf(const Value& value) {
  std::string text;
  AppendRepr(text, value, 0);
  return text;
}

std::string TextOfReal(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 64> buffer{};
  // the fewest digits that give the same number, "d.ddde-07"
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                 std::chars_format::scientific);
  const std::string_view scientific(buffer.data(), end.ptr);
  const size_t at = scientific.find('e');
  int exponent = 0;
  std::string_view power = scientific.substr(at + 1);
  if (power.starts_with('+')) power.remove_prefix(1);
  std::from_chars(power.data(), power.data() + power.size(), exponent);
  if (exponent < -4 || exponent >= 16) return std::string(scientific);
  const auto fixed =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::fixed);
  std::string text(buffer.data(), fixed.ptr);
  if (!text.contains('.')) text += ".0";
  return text;
}

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
      if (value.is_tuple()) return "tuple";
      if (value.list().form == List::Form::kRange) return "range";
      return value.is_lazy() ? "generator" : "list";
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

double RealOf(const Value& number) {
  switch (number.kind()) {
    case Value::Kind::kBool:
      return number.boolean() ? 1.0 : 0.0;
    case Value::Kind::kInt:
      return static_cast<double>(number.integer());
    case Value::Kind::kBigInt: {
      double value = 0.0;
      const std::string& digits = number.digits();
      const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), value);
      if (read.ec == std::errc()) return value;
      return std::numeric_limits<double>::infinity() * (digits.starts_with('-') ? -1.0 : 1.0);
    }
    default:
      return number.real();
  }
}

int64_t WholeOf(const Value& value, std::string_view what) {
  if (value.kind() == Value::Kind::kInt) return value.integer();
  if (value.kind() == Value::Kind::kBool) return value.boolean() ? 1 : 0;
  if (value.is_undefined()) Raise("{}", value.why_undefined());
  Raise("{} is a '{}', not a whole number of 64 bits", what, TypeName(value));
}

}  // namespace moestro::jinja
