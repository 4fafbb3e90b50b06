// SPDX-License-Identifier: MIT
// JSON texts as values and back, like Python's module json: whole numbers stay whole, and keys keep
// their order.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "jinja/value.h"

namespace moestro::jinja {

struct JsonReading {
  size_t values_left = 0;  // most values of the texts; ReadJson() subtracts those that it read
  // Changes each text and key; empty: no change.
  std::function<std::string(std::string)> change_text = {};
};

// kInvalidRequest: the text is no JSON, is nested deeper than Json::kMaxDepth, or has too many
// values.
Result<Value> ReadJson(std::string_view text, JsonReading& reading);

struct JsonStyle {
  bool escapes_beyond_ascii = false;
  bool sorts_keys = false;
  bool has_lines = false;  // one value a line
  std::string indent = {};
  std::string behind_item = ", ";
  std::string behind_key = ": ";
};
// Throws Failure for values that JSON cannot express.
std::string WriteJson(const Value& value, const JsonStyle& style);

}  // namespace moestro::jinja
