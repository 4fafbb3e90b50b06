// SPDX-License-Identifier: MIT
// The keys that clients of a server must have. Keys stand in a file, never on a command line, which
// every user of the machine can read. No message and no log line repeats a key.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace moestro {

// The file's keys, one a line. Blanks at the ends of lines, empty lines and lines that begin with #
// do not count. Warns when other users of the machine can read the file, unless it is a credential
// of systemd's or a secret of a container. kIo: the file cannot be read; kUsage: the file holds no
// key, or a key that no client can send; the message has the line's number.
Result<std::vector<std::string>> ReadKeyFile(const std::string& path);

// The number of the key that was given, from 1; 0: no key is equal. Every key is compared in full.
// So the time depends on the keys alone, not on how much of a key was guessed.
uint32_t WhichKey(std::span<const std::string> keys, std::string_view given);
inline bool IsKnownKey(std::span<const std::string> keys, std::string_view given) {
  return WhichKey(keys, given) > 0;
}

// The key in "Authorization: Bearer KEY"; empty: the header has no key.
std::string BearerOf(std::string_view authorization);

}  // namespace moestro
