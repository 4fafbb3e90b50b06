// SPDX-License-Identifier: MIT
// Where this program may keep what it can make again.
#pragma once

#include <string>

namespace moestro {

// $XDG_CACHE_HOME/moestro, else ~/.cache/moestro; empty if neither is an absolute path. Nobody has
// made the folder yet.
std::string CacheFolder();

}  // namespace moestro
