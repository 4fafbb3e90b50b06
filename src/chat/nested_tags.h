// SPDX-License-Identifier: MIT
// Reads values whose parts are in tags named like keys (call_style.h, kNested), while the values
// are still being written.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "chat/call_style.h"
#include "chat/json_scan.h"

namespace moestro {

// Turns the text of a tag without inner tags into JSON. `path`: the tag's keys from the call's
// parameter on, one a line.
using NestedText = std::function<std::string(std::string_view path, std::string_view text)>;

struct NestedScan {
  Scan state = Scan::kOpen;
  size_t length = 0;  // up to and with CALL_END if the call is whole, else up to what was read
  // The arguments as a JSON object, as far as whole parameters go; more text never changes this
  // beginning.
  std::string json;
};

// `text` begins behind NAME_END. Tags called "item" alone are an array. Deeper nesting than
// Json::kMaxDepth is broken. Does not recurse.
NestedScan ScanNested(const CallStyle& style, std::string_view text, const NestedText& text_of);

}  // namespace moestro
