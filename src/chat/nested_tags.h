// SPDX-License-Identifier: MIT
// Reads values whose parts are in tags named like keys (call_style.h, kNested), while the values
// are still being written.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "chat/call_style.h"
#include "chat/json_scan.h"

namespace moestro {

// Turns the text of a tag without inner tags into JSON. `parameter`: the tag's key, or none for a
// tag within others.
using NestedText =
    std::function<std::string(std::optional<std::string_view> parameter, std::string_view text)>;

// `text` begins behind NAME_END and ends with CALL_END. The JSON is an object, as far as whole
// parameters go. Tags called "item" alone are an array. Any depth: the scan does not recurse.
SpelledScan ScanNested(const CallStyle& style, std::string_view text, const NestedText& text_of);

}  // namespace moestro
