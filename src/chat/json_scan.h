// SPDX-License-Identifier: MIT
// Finds the end of a JSON value in a text that is still being written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace moestro {

enum class Scan : uint8_t {
  kWhole,
  kOpen,  // the text ends within the value
  kBroken,
};

struct JsonScan {
  Scan state = Scan::kOpen;
  // The value's length if it is whole, else the length of the part that certainly belongs to the
  // value: never less for more text.
  size_t length = 0;
};

// `text` begins with the value, perhaps after blanks, which count. A number is whole only when
// another character follows. Deeper nesting than Json::kMaxDepth is broken. Does not recurse.
JsonScan ScanJson(std::string_view text);

inline constexpr std::string_view kBlanks = " \t\r\n";
// The bytes of blanks that `text` begins with.
size_t CountBlanks(std::string_view text);

}  // namespace moestro
