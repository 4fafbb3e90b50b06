// SPDX-License-Identifier: MIT
// The folder for files that this program can make again.
#pragma once

#include <string>
#include <system_error>

namespace moestro {

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

}  // namespace moestro
