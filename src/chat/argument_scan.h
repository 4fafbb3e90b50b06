// SPDX-License-Identifier: MIT
// Readers of a call's arguments in tags and in Python's spelling, while they are written.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "chat/call_style.h"
#include "chat/json_scan.h"

namespace moestro {

// Reads values whose parts are in tags named like keys (call_style.h, kNested), while the values
// are still being written.

// Turns the text of a tag without inner tags into JSON. `parameter`: the tag's key, or none for a
// tag within others.
using NestedText =
    std::function<std::string(std::optional<std::string_view> parameter, std::string_view text)>;

// `text` begins behind NAME_END and ends with CALL_END. The JSON is an object, as far as whole
// parameters go. Tags called "item" alone are an array. Any depth: the scan does not recurse.
SpelledScan ScanNested(const CallStyle& style, std::string_view text, const NestedText& text_of);

// Reads the arguments of a call in Python's spelling while it is still being written: KEY=VALUE,
// ...), where values are strings, numbers, True, False, None, lists, tuples and dicts, or JSON.

// `text` begins behind the opening parenthesis and ends with the closing one. The JSON of the
// arguments is an object.
SpelledScan ScanPythonArguments(std::string_view text);

// Letters, digits and underscores, no digit first.
bool IsPythonName(std::string_view name);

}  // namespace moestro
