// SPDX-License-Identifier: MIT
// Operators: Python's results for two values.
#include <algorithm>
#include <cmath>
#include <optional>

#include "jinja/characters.h"
#include "jinja/failure.h"
#include "jinja/interpreter.h"
#include "jinja/object.h"

namespace moestro::jinja {
namespace {

constexpr size_t kMostItems = size_t{1} << 22U;  // of a list that an operator makes

std::string_view SignOf(Operator op) {
  switch (op) {
    case Operator::kAdd:
      return "+";
    case Operator::kSubtract:
      return "-";
    case Operator::kMultiply:
      return "*";
    case Operator::kDivide:
      return "/";
    case Operator::kFloorDivide:
      return "//";
    case Operator::kModulo:
      return "%";
    default:
      return "**";
  }
}

[[noreturn]] void RaiseOperands(Operator op, const Value& a, const Value& b) {
  for (const Value* value : {&a, &b}) {
    if (value->is_undefined()) Raise("{}", value->why_undefined());
  }
  if (op == Operator::kAdd && a.is_text()) {
    Raise("can only concatenate str (not \"{}\") to str", TypeName(b));
  }
  Raise("unsupported operand type(s) for {}: '{}' and '{}'", SignOf(op), TypeName(a), TypeName(b));
}

[[noreturn]] void RaiseTooLarge() { Raise("a whole number of more than 64 bits"); }

int64_t FloorDivide(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return quotient * b != a && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

Value IntegerPower(int64_t base, int64_t exponent) {
  if (exponent < 0)
    return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  int64_t power = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(power, base, &power)) RaiseTooLarge();
    if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) RaiseTooLarge();
  }
  return Value(power);
}

Value CombineIntegers(Operator op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflows = false;
  const bool divides =
      op == Operator::kDivide || op == Operator::kFloorDivide || op == Operator::kModulo;
  if (divides && b == 0) Raise("division by zero");
  switch (op) {
    case Operator::kAdd:
      overflows = __builtin_add_overflow(a, b, &result);
      break;
    case Operator::kSubtract:
      overflows = __builtin_sub_overflow(a, b, &result);
      break;
    case Operator::kMultiply:
      overflows = __builtin_mul_overflow(a, b, &result);
      break;
    case Operator::kDivide:
      return Value(static_cast<double>(a) / static_cast<double>(b));
    case Operator::kFloorDivide:
    case Operator::kModulo:
      // The one quotient that does not fit.
      if (b == -1) {
        if (op == Operator::kModulo) return Value(int64_t{0});
        overflows = __builtin_sub_overflow(int64_t{0}, a, &result);
        break;
      }
      result = FloorDivide(a, b);
      if (op == Operator::kModulo) result = a - result * b;
      break;
    default:
      return IntegerPower(a, b);
  }
  if (overflows) RaiseTooLarge();
  return Value(result);
}

Value CombineReals(Operator op, double a, double b) {
  const bool divides =
      op == Operator::kDivide || op == Operator::kFloorDivide || op == Operator::kModulo;
  if (divides && b == 0.0) Raise("float division by zero");
  switch (op) {
    case Operator::kAdd:
      return Value(a + b);
    case Operator::kSubtract:
      return Value(a - b);
    case Operator::kMultiply:
      return Value(a * b);
    case Operator::kDivide:
      return Value(a / b);
    case Operator::kFloorDivide:
      return Value(std::floor(a / b));
    case Operator::kModulo: {
      const double rest = std::fmod(a, b);
      return Value(rest != 0.0 && (rest < 0) != (b < 0) ? rest + b : rest);
    }
    default:
      return Value(std::pow(a, b));
  }
}

std::optional<int64_t> IntegerOf(const Value& value) {
  if (value.kind() == Value::Kind::kInt) return value.integer();
  if (value.kind() == Value::Kind::kBool) return value.boolean() ? 1 : 0;
  return std::nullopt;
}

Value Repeat(const Value& value, int64_t times) {
  const auto n = static_cast<size_t>(std::max<int64_t>(times, 0));
  if (value.is_text()) {
    const std::string& text = value.text();
    if (!text.empty() && n > kMostTextBytes / text.size()) {
      Raise("a text of more than {} bytes", kMostTextBytes);
    }
    std::string repeated;
    repeated.reserve(text.size() * n);
    for (size_t i = 0; i < n; ++i) repeated += text;
    return WithEscapesOf(value, std::move(repeated));
  }
  const std::vector<Value>& items = value.list().items;
  if (!items.empty() && n > kMostItems / items.size())
    Raise("a list of more than {} items", kMostItems);
  std::vector<Value> repeated;
  for (size_t i = 0; i < n; ++i) repeated.insert(repeated.end(), items.begin(), items.end());
  return Value::MakeList(std::move(repeated), value.list().form);
}

bool IsRepeatable(const Value& value) {
  return value.is_text() || (value.has_places() && value.list().form != List::Form::kRange);
}

Value CombineOthers(Operator op, const Value& a, const Value& b) {
  if (op == Operator::kAdd && a.is_text() && b.is_text()) {
    if (!a.is_escaped() && !b.is_escaped()) return Value(a.text() + b.text());
    return Value::EscapedText(EscapedTextOf(a) + EscapedTextOf(b));
  }
  if (op == Operator::kAdd && a.is_list() && b.is_list() && TypeName(a) == TypeName(b) &&
      (a.is_tuple() || a.list().form == List::Form::kList)) {
    std::vector<Value> items = a.list().items;
    const std::vector<Value>& more = b.list().items;
    if (items.size() + more.size() > kMostItems) Raise("a list of more than {} items", kMostItems);
    items.insert(items.end(), more.begin(), more.end());
    return Value::MakeList(std::move(items), a.is_tuple() ? List::Form::kTuple : List::Form::kList);
  }
  if (op == Operator::kMultiply) {
    if (const auto times = IntegerOf(b); times && IsRepeatable(a)) return Repeat(a, *times);
    if (const auto times = IntegerOf(a); times && IsRepeatable(b)) return Repeat(b, *times);
  }
  if (op == Operator::kModulo && a.is_text()) return FormatPercent(a, b);
  RaiseOperands(op, a, b);
}

// Python's bounds of a slice over `length` items.
struct Bounds {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t step = 1;
};

Bounds BoundsOf(const Value& begin, const Value& end, const Value& step, int64_t length) {
  Bounds bounds;
  if (!step.is_none()) bounds.step = WholeOf(step, "a slice's step");
  if (bounds.step == 0) Raise("slice step cannot be zero");
  const bool is_back = bounds.step < 0;
  const auto place = [&](const Value& bound, int64_t otherwise) {
    if (bound.is_none()) return otherwise;
    int64_t at = WholeOf(bound, "a slice's bound");
    if (at < 0) at = std::max<int64_t>(at, -length - 1) + length;
    return std::clamp<int64_t>(at, is_back ? -1 : 0, is_back ? length - 1 : length);
  };
  bounds.begin = place(begin, is_back ? length - 1 : 0);
  bounds.end = place(end, is_back ? -1 : length);
  return bounds;
}

template <class Take>
void ForEachPlace(const Bounds& bounds, Take take) {
  int64_t at = bounds.begin;
  while (bounds.step > 0 ? at < bounds.end : at > bounds.end) {
    take(static_cast<size_t>(at));
    if (__builtin_add_overflow(at, bounds.step, &at)) return;
  }
}

Value SliceText(const Value& value, const Value& begin, const Value& end, const Value& step) {
  const std::string& text = value.text();
  const Bounds bounds = BoundsOf(begin, end, step, static_cast<int64_t>(CountCharacters(text)));
  if (bounds.step == 1) {
    if (bounds.begin >= bounds.end) return WithEscapesOf(value, "");
    const size_t first = ByteOf(text, static_cast<size_t>(bounds.begin));
    const std::string_view rest = std::string_view(text).substr(first);
    return WithEscapesOf(
        value,
        std::string(rest.substr(0, ByteOf(rest, static_cast<size_t>(bounds.end - bounds.begin)))));
  }
  const std::vector<std::string_view> characters = SplitCharacters(text);
  std::string sliced;
  ForEachPlace(bounds, [&](size_t at) { sliced += characters[at]; });
  return WithEscapesOf(value, std::move(sliced));
}

}  // namespace

Value Combine(Operator op, const Value& a, const Value& b) {
  if (!a.is_number() || !b.is_number()) return CombineOthers(op, a, b);
  const auto whole_a = IntegerOf(a);
  const auto whole_b = IntegerOf(b);
  if (whole_a && whole_b) return CombineIntegers(op, *whole_a, *whole_b);
  if (a.kind() != Value::Kind::kFloat && b.kind() != Value::Kind::kFloat) RaiseTooLarge();
  return CombineReals(op, RealOf(a), RealOf(b));
}

bool Compare(Operator op, const Value& a, const Value& b) {
  switch (op) {
    case Operator::kEqual:
      return AreEqual(a, b);
    case Operator::kNotEqual:
      return !AreEqual(a, b);
    case Operator::kLess:
      return IsLess(a, b);
    case Operator::kGreater:
      return IsLess(b, a);
    case Operator::kLessOrEqual:
      return IsLess(a, b) || AreEqual(a, b);
    case Operator::kGreaterOrEqual:
      return IsLess(b, a) || AreEqual(a, b);
    case Operator::kIn:
      return Contains(b, a);
    default:
      return !Contains(b, a);
  }
}

bool Contains(const Value& container, const Value& item) {
  switch (container.kind()) {
    case Value::Kind::kText:
      if (!item.is_text()) {
        Raise("'in <string>' requires string as left operand, not {}", TypeName(item));
      }
      return container.text().contains(item.text());
    case Value::Kind::kDict:
      return container.dict().Find(item) != nullptr;
    case Value::Kind::kList:
    case Value::Kind::kUndefined:
      return std::ranges::any_of(ItemsOf(container),
                                 [&item](const Value& other) { return AreEqual(other, item); });
    default:
      Raise("argument of type '{}' is not iterable", TypeName(container));
  }
}

Value Slice(const Value& value, const Value& begin, const Value& end, const Value& step) {
  if (value.is_undefined()) Raise("{}", value.why_undefined());
  if (value.is_text()) return SliceText(value, begin, end, step);
  if (!value.has_places()) Raise("'{}' object has no slices", TypeName(value));
  const std::vector<Value>& items = value.list().items;
  const Bounds bounds = BoundsOf(begin, end, step, static_cast<int64_t>(items.size()));
  std::vector<Value> sliced;
  ForEachPlace(bounds, [&](size_t at) { sliced.push_back(items[at]); });
  return Value::MakeList(std::move(sliced), value.list().form);
}

}  // namespace moestro::jinja
