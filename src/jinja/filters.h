// SPDX-License-Identifier: MIT
// Filters by name: their tables, for the sources of filters alone.
#pragma once

#include <string_view>
#include <unordered_map>

#include "jinja/failure.h"
#include "jinja/interpreter.h"

namespace moestro::jinja {

// Tables of filters, for filters.cc alone.

// One filter at work.
struct FilterCall {
  Interpreter& interpreter;
  const Value& input;
  Arguments& arguments;
  std::string_view name;

  ArgumentReader Reader() const { return {name, arguments}; }
  void ExpectNoArguments() const { Reader().ExpectEnd(); }
};

inline bool FlagOf(ArgumentReader& reader, std::string_view name) {
  return IsTrue(reader.Take(name, Value(false)));
}

using Filter = Value (*)(const FilterCall&);
using FilterTable = std::unordered_map<std::string_view, Filter>;
const FilterTable& TextFilters();
const FilterTable& MarkupFilters();
const FilterTable& NumberFilters();
const FilterTable& ListFilters();
const FilterTable& ValueFilters();

}  // namespace moestro::jinja
