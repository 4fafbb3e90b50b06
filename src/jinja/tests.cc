// SPDX-License-Identifier: MIT
// Jinja's tests, which stand behind "is".
#include <algorithm>
#include <unordered_map>

#include "jinja/characters.h"
#include "jinja/failure.h"
#include "jinja/interpreter.h"

namespace moestro::jinja {
namespace {

using Kind = Value::Kind;
using PlainTest = bool (*)(const Value&);
using OtherTest = bool (*)(const Value&, const Value&);

bool IsSequence(const Value& value) {
  return value.is_undefined() || value.is_text() || value.is_dict() || value.has_places();
}

int64_t RestOf(const Value& value, const Value& divisor) {
  const Value rest = Combine(Operator::kModulo, value, divisor);
  return rest.kind() == Kind::kInt ? rest.integer() : (RealOf(rest) == 0.0 ? 0 : -1);
}

// Some letter has two cases, and each that has is of this one.
template <class IsCase, class IsOther>
bool HasCase(const Value& value, IsCase is_case, IsOther is_other) {
  bool has_case = false;
  const std::string text = TextOf(value);
  for (const std::string_view c : SplitCharacters(text)) {
    const uint32_t code = FirstCharacter(c).code_point;
    if (is_other(code)) return false;
    has_case = has_case || is_case(code);
  }
  return has_case;
}

const std::unordered_map<std::string_view, PlainTest>& PlainTests() {
  static const std::unordered_map<std::string_view, PlainTest> tests{
      {"defined", [](const Value& v) { return !v.is_undefined(); }},
      {"undefined", [](const Value& v) { return v.is_undefined(); }},
      {"none", [](const Value& v) { return v.is_none(); }},
      {"boolean", [](const Value& v) { return v.kind() == Kind::kBool; }},
      {"true", [](const Value& v) { return v.kind() == Kind::kBool && v.boolean(); }},
      {"false", [](const Value& v) { return v.kind() == Kind::kBool && !v.boolean(); }},
      {"integer",
       [](const Value& v) { return v.kind() == Kind::kInt || v.kind() == Kind::kBigInt; }},
      {"float", [](const Value& v) { return v.kind() == Kind::kFloat; }},
      {"number", [](const Value& v) { return v.is_number(); }},
      {"string", [](const Value& v) { return v.is_text(); }},
      {"mapping", [](const Value& v) { return v.is_dict(); }},
      {"sequence", IsSequence},
      {"iterable", IsIterable},
      {"callable",
       [](const Value& v) {
         return v.is_undefined() || (v.is_object() && v.object().is_callable());
       }},
      {"odd", [](const Value& v) { return RestOf(v, Value(int64_t{2})) == 1; }},
      {"even", [](const Value& v) { return RestOf(v, Value(int64_t{2})) == 0; }},
      {"lower", [](const Value& v) { return HasCase(v, IsLowerCase, IsUpperCase); }},
      {"upper", [](const Value& v) { return HasCase(v, IsUpperCase, IsLowerCase); }},
      {"escaped", [](const Value& v) { return v.is_escaped(); }},
      {"filter", [](const Value& v) { return v.is_text() && HasFilter(v.text()); }},
      {"test", [](const Value& v) { return v.is_text() && HasTest(v.text()); }},
  };
  return tests;
}

const std::unordered_map<std::string_view, OtherTest>& OtherTests() {
  constexpr auto kEqual = [](const Value& a, const Value& b) { return AreEqual(a, b); };
  constexpr auto kNotEqual = [](const Value& a, const Value& b) { return !AreEqual(a, b); };
  constexpr auto kLess = [](const Value& a, const Value& b) {
    return Compare(Operator::kLess, a, b);
  };
  constexpr auto kLessOrEqual = [](const Value& a, const Value& b) {
    return Compare(Operator::kLessOrEqual, a, b);
  };
  constexpr auto kGreater = [](const Value& a, const Value& b) {
    return Compare(Operator::kGreater, a, b);
  };
  constexpr auto kGreaterOrEqual = [](const Value& a, const Value& b) {
    return Compare(Operator::kGreaterOrEqual, a, b);
  };
  static const std::unordered_map<std::string_view, OtherTest> tests{
      {"==", kEqual},
      {"eq", kEqual},
      {"equalto", kEqual},
      {"!=", kNotEqual},
      {"ne", kNotEqual},
      {"<", kLess},
      {"lt", kLess},
      {"lessthan", kLess},
      {"<=", kLessOrEqual},
      {"le", kLessOrEqual},
      {">", kGreater},
      {"gt", kGreater},
      {"greaterthan", kGreater},
      {">=", kGreaterOrEqual},
      {"ge", kGreaterOrEqual},
      {"in", [](const Value& a, const Value& b) { return Contains(b, a); }},
      {"sameas", [](const Value& a, const Value& b) { return Value::AreSame(a, b); }},
      {"divisibleby", [](const Value& a, const Value& b) { return RestOf(a, b) == 0; }},
  };
  return tests;
}

}  // namespace

bool HasTest(std::string_view name) {
  return PlainTests().contains(name) || OtherTests().contains(name);
}

bool ApplyTest(std::string_view name, const Value& input, Arguments& arguments) {
  ArgumentReader reader(name, arguments);
  if (const auto plain = PlainTests().find(name); plain != PlainTests().end()) {
    reader.ExpectEnd();
    return plain->second(input);
  }
  const auto other = OtherTests().find(name);
  if (other == OtherTests().end()) Raise("no test is named '{}'", name);
  const Value operand = reader.Take("other");
  reader.ExpectEnd();
  return other->second(input, operand);
}

}  // namespace moestro::jinja
