// SPDX-License-Identifier: MIT
// Small files of the user's cache. A file that another user could have written is not read.
//
// Thread rule: none, calls share nothing but the file system.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace moestro {

// The content of a file of `bytes` bytes that belongs to this user and that no other user may
// write; else nothing. Follows no link, waits for no pipe.
std::string ReadOwnFile(const std::string& path, size_t bytes);
// Writes a file that only this user can read. A reader gets all of it or the file before. False on
// failure with errno set; the file before is then unchanged.
bool WriteOwnFile(const std::string& path, std::string_view content);

}  // namespace moestro
