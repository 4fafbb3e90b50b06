// SPDX-License-Identifier: MIT
// Jinja's filters of any value; `tojson` is as transformers has it.
#include "jinja/filter_call.h"
#include "jinja/json_text.h"

namespace moestro::jinja {
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

}  // namespace moestro::jinja
