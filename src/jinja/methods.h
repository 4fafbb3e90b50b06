// SPDX-License-Identifier: MIT
// Tables of Python's methods, for methods.cc alone.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>

#include "jinja/failure.h"
#include "jinja/interpreter.h"

namespace moestro::jinja {

// One method at work.
struct MethodCall {
  Interpreter& interpreter;
  const Value& self;
  Arguments& arguments;
  std::string_view name;

  const std::string& text() const { return self.text(); }
  ArgumentReader Reader() const { return {name, arguments}; }
  void ExpectNoArguments() const { Reader().ExpectEnd(); }
};
using Method = Value (*)(const MethodCall&);
using MethodTable = std::unordered_map<std::string_view, Method>;

inline Value CountValue(size_t n) { return Value(static_cast<int64_t>(n)); }

const MethodTable& TextMethods();
// Methods that look at each character, for TextMethods() alone.
const MethodTable& CharacterMethods();

}  // namespace moestro::jinja
