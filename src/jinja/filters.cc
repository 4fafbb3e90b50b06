// SPDX-License-Identifier: MIT
// Filters by name.
#include "jinja/filters.h"

#include <cmath>
#include <optional>

#include "jinja/json_text.h"
#include "jinja/object.h"

namespace moestro::jinja {
namespace {

// none: no filter has that name.
const FilterTable::value_type* FindFilter(std::string_view name) {
  for (const FilterTable* filters :
       {&TextFilters(), &ListFilters(), &ValueFilters(), &NumberFilters(), &MarkupFilters()}) {
    const auto found = filters->find(name);
    if (found != filters->end()) return &*found;
  }
  return nullptr;
}

}  // namespace

bool HasFilter(std::string_view name) { return FindFilter(name) != nullptr; }

Value ApplyFilter(Interpreter& interpreter, std::string_view name, const Value& input,
                  Arguments& arguments) {
  const auto* const filter = FindFilter(name);
  if (name == "random" || name == "urlize") {
    Raise("the filter '{}' is left out on purpose: a conversation has one prompt, and no links",
          name);
  }
  if (filter == nullptr) Raise("no filter is named '{}'", name);
  return filter->second(
      {.interpreter = interpreter, .input = input, .arguments = arguments, .name = filter->first});
}

// Jinja's filters of any value; `tojson` is as transformers has it.

namespace {

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
    style.has_lines = true;
    style.behind_item = ",";
    style.indent = indent.is_text() ? indent.text() : BlanksOf(WholeOf(indent, "an indent"));
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
  return Value(PrettyTextOf(call.input));
}

}  // namespace

const FilterTable& ValueFilters() {
  static const FilterTable filters{
      {"attr", FilterAttr},          {"d", FilterDefault},     {"default", FilterDefault},
      {"pprint", FilterPrettyPrint}, {"tojson", FilterToJson},
  };
  return filters;
}

// Jinja's filters of numbers.

namespace {

Value FilterInt(const FilterCall& call) {
  ArgumentReader reader = call.Reader();
  const Value otherwise = reader.Take("default", Value(int64_t{0}));
  const int64_t base = WholeOf(reader.Take("base", Value(int64_t{10})), "a base");
  reader.ExpectEnd();
  const Value& input = call.input;
  if (input.is_undefined()) Raise("{}", input.why_undefined());
  if (input.is_text()) {
    const bool is_base = base == 0 || (base >= 2 && base <= 36);
    const auto whole = is_base ? WholeOfText(input.text(), static_cast<int>(base)) : std::nullopt;
    if (whole) return *whole;
    const auto real = RealOfText(input.text());
    return real && std::isfinite(*real) ? WholePartOf(*real) : otherwise;
  }
  if (input.kind() == Value::Kind::kFloat) {
    return std::isnan(input.real()) ? otherwise : WholePartOf(input.real());
  }
  if (input.kind() == Value::Kind::kBool) return Value(int64_t{input.boolean() ? 1 : 0});
  return input.is_number() ? input : otherwise;
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
    return WholePartOf(rounded);
  }
  // Rounds the decimal digits of the number's exact value; halves go to the even digit.
  const Value digits = FormatPercent(Value(Format("%.{}f", precision)), input);
  return Value(RealOfText(digits.text()).value_or(input.real()));
}
Value FilterFileSize(const FilterCall& call) {
  ArgumentReader reader = call.Reader();
  const bool is_binary = FlagOf(reader, "binary");
  reader.ExpectEnd();
  const Value& input = call.input;
  if (input.is_undefined()) Raise("{}", input.why_undefined());
  const auto bytes = input.is_number() ? std::optional(RealOf(input))
                     : input.is_text() ? RealOfText(input.text())
                                       : std::nullopt;
  if (!bytes) Raise("filesizeformat: a number is needed, not {}", ReprOf(input));
  const double base = is_binary ? 1024.0 : 1000.0;
  if (*bytes == 1.0) return Value("1 Byte");
  if (*bytes < base) return Value(TextOf(WholePartOf(*bytes)) + " Bytes");
  constexpr std::string_view kNames = "kMGTPEZY";
  size_t name = 0;
  double unit = base * base;
  for (; *bytes >= unit && name + 1 < kNames.size(); ++name) unit *= base;
  const char letter = is_binary && name == 0 ? 'K' : kNames[name];
  const Value size = FormatPercent(Value("%.1f"), Value(base * *bytes / unit));
  return Value(Format("{} {}{}B", size.text(), letter, is_binary ? "i" : ""));
}

}  // namespace

const FilterTable& NumberFilters() {
  static const FilterTable filters{
      {"abs", FilterAbs},     {"filesizeformat", FilterFileSize},
      {"float", FilterFloat}, {"int", FilterInt},
      {"round", FilterRound},
  };
  return filters;
}

}  // namespace moestro::jinja
