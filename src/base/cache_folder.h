// SPDX-License-Identifier: MIT
// Where this program may keep what it can make again.
#pragma once

#include <string>
#include <system_error>

namespace moestro {

// $XDG_CACHE_HOME/moestro, else ~/.cache/moestro; empty if neither is an absolute path. The
// folder may not exist yet.
std::string CacheFolder();

// Makes `folder` and what is missing above it, for this user alone. One that exists stays as it is.
std::error_code MakePrivateFolder(const std::string& folder);
// Other users of the machine can look into the folder, or it is theirs.
bool IsOpenToOthers(const std::string& folder);
// For a folder of conversations: a warning if it is.
void WarnIfOpenToOthers(const std::string& folder);

}  // namespace moestro
