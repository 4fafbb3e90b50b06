// SPDX-License-Identifier: MIT
// The user's cache: its folder and small files in it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <system_error>

namespace moestro {

// The folder for files that this program can make again.

// $XDG_CACHE_HOME/moestro, else ~/.cache/moestro; empty if neither is an absolute path. The
// folder may not exist yet.
std::string CacheFolder();

// Makes `folder` and missing folders above it, for this user alone. A folder that exists stays as
// it is.
std::error_code MakePrivateFolder(const std::string& folder);
// Other users of the machine can read the folder or own it.
bool IsOpenToOthers(const std::string& folder);
// Warns if a folder of conversations is open to others.
void WarnIfOpenToOthers(const std::string& folder);

// Small files of the user's cache. A file that another user could have written is not read.
//
// Thread rule: none, calls share nothing but the file system.

// The content of a file of at most `most` bytes that belongs to this user and that no other user
// may write; else nothing. Follows no link, waits for no pipe.
std::string ReadOwnFile(const std::string& path, size_t most);
// Writes a file that only this user can read. A reader gets all of it or the file before. False on
// failure with errno set; the file before is then unchanged.
bool WriteOwnFile(const std::string& path, std::string_view content);

}  // namespace moestro
