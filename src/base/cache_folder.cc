// SPDX-License-Identifier: MIT
#include "base/cache_folder.h"

#include <cstdlib>

namespace moestro {

std::string CacheFolder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && cache[0] == '/') return std::string(cache) + "/moestro";
  const char* home = std::getenv("HOME");
  if (home != nullptr && home[0] == '/') return std::string(home) + "/.cache/moestro";
  return {};
}

}  // namespace moestro
