// SPDX-License-Identifier: MIT
// Reads the arguments of a call in Python's spelling while it is still being written: KEY=VALUE,
// ...), where values are strings, numbers, True, False, None, lists, tuples and dicts, or JSON.
#pragma once

#include <string_view>

#include "chat/json_scan.h"

namespace moestro {

// `text` begins behind the opening parenthesis and ends with the closing one. The JSON of the
// arguments is an object.
SpelledScan ScanPythonArguments(std::string_view text);

// Letters, digits and underscores, no digit first.
bool IsPythonName(std::string_view name);

}  // namespace moestro
