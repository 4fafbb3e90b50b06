// SPDX-License-Identifier: MIT
// The keys that clients of a server must have. They stand in a file, never on a command line, which
// every user of the machine can read, and no message or log line repeats one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace moestro {

// A key a line; blanks at the ends of lines and empty lines do not count. Warns when other users
// of the machine can read the file. kIo: it cannot be read; kUsage: it holds none.
Result<std::vector<std::string>> ReadKeyFile(const std::string& path);

// Which key it is, from 1; 0: none. All keys are compared, and each in full: how long it takes
// depends on the keys alone, not on how much of one was guessed.
uint32_t WhichKey(std::span<const std::string> keys, std::string_view given);
inline bool IsKnownKey(std::span<const std::string> keys, std::string_view given) {
  return WhichKey(keys, given) > 0;
}

// The key of an "Authorization: Bearer KEY"; empty: there is none.
std::string BearerOf(std::string_view authorization);

}  // namespace moestro
