// SPDX-License-Identifier: MIT
// Opens paths that must be files, and reads small files such as those of /proc and /sys: they may
// be missing, endless, binary or no files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"

namespace moestro {

// Opens a file for reading. Waits for no pipe. kIo: the path cannot be opened, or is no file; the
// message names its kind.
Result<UniqueFd> OpenRegularFile(const std::string& path);

// Reads a whole file. kIo: as OpenRegularFile(); kInvalidFile: more than `most` bytes.
Result<std::string> ReadRegularFile(const std::string& path, uint64_t most);

// True if no file has this name, or can have it. False also where that cannot be found out; opening
// then gives the reason.
bool IsAbsent(const std::string& path);

// The beginning of a regular file, at most `most` bytes. Waits for no pipe. nullopt: the file
// cannot be read.
std::optional<std::string> ReadSmallFile(const std::string& path, size_t most = 64 * 1024);

// The file's first line without blanks around it, if short and printable; else empty.
std::string ReadWord(const std::string& path);

// The number behind `field` in a text of "Field: 123" lines; nullopt: no such line, or no number of
// 64 bits.
std::optional<uint64_t> FieldOf(std::string_view text, std::string_view field);

}  // namespace moestro
