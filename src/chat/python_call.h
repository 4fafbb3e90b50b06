// SPDX-License-Identifier: MIT
// Reads the arguments of a call in Python's spelling while it is still being written: KEY=VALUE,
// ...), where values are strings, numbers, True, False, None, lists, tuples and dicts, or JSON.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "chat/json_scan.h"

namespace moestro {

struct PythonScan {
  Scan state = Scan::kOpen;
  size_t length = 0;  // up to and with the parenthesis if whole, else up to what was read
  // The arguments as a JSON object, as far as they are certain; more text never changes this
  // beginning.
  std::string json;
};

// `text` begins behind the opening parenthesis. Deeper nesting than Json::kMaxDepth is broken. Does
// not recurse.
PythonScan ScanPythonArguments(std::string_view text);

// Letters, digits and underscores, no digit first.
bool IsPythonName(std::string_view name);

}  // namespace moestro
