// SPDX-License-Identifier: MIT
#include "jinja/object.h"

#include <algorithm>

#include "jinja/failure.h"

namespace moestro::jinja {

std::optional<Value> ArgumentReader::TakeIfGiven(std::string_view name) {
  const auto named =
      std::ranges::find(arguments_.named, name, &std::pair<std::string, Value>::first);
  const bool is_named = named != arguments_.named.end();
  if (next_ < arguments_.values.size()) {
    if (is_named) Raise("{}() got two values for '{}'", function_, name);
    return arguments_.values[next_++];
  }
  if (!is_named) return std::nullopt;
  ++taken_names_;
  return named->second;
}

Value ArgumentReader::Take(std::string_view name) {
  if (auto value = TakeIfGiven(name)) return *std::move(value);
  Raise("{}() is missing its argument '{}'", function_, name);
}

Value ArgumentReader::Take(std::string_view name, Value otherwise) {
  if (auto value = TakeIfGiven(name)) return *std::move(value);
  return otherwise;
}

void ArgumentReader::ExpectEnd() const {
  if (next_ < arguments_.values.size()) {
    Raise("{}() takes not more than {} argument(s)", function_, next_);
  }
  if (taken_names_ < arguments_.named.size()) {
    Raise("{}() got an argument that it does not have", function_);
  }
}

std::optional<Value> Object::Attribute(std::string_view /*name*/) const { return std::nullopt; }

Value Object::Call(Interpreter& /*interpreter*/, Arguments& /*arguments*/) {
  Raise("'{}' object is not callable", type_name());
}

Value MakeFunction(Function::Body body) {
  return Value(std::static_pointer_cast<Object>(std::make_shared<Function>(std::move(body))));
}

std::optional<Value> Namespace::Attribute(std::string_view name) const {
  const Value* value = members_.Find(name);
  if (value == nullptr) return std::nullopt;
  return *value;
}

}  // namespace moestro::jinja
