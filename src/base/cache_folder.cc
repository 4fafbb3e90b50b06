// SPDX-License-Identifier: MIT
#include "base/cache_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "base/log.h"

namespace moestro {

std::string CacheFolder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && cache[0] == '/') return std::string(cache) + "/moestro";
  const char* home = std::getenv("HOME");
  if (home != nullptr && home[0] == '/') return std::string(home) + "/.cache/moestro";
  return {};
}

std::error_code MakePrivateFolder(const std::string& folder) {
  std::filesystem::path made;
  for (const std::filesystem::path& part : std::filesystem::path(folder)) {
    made /= part;
    constexpr mode_t kOwnerAlone = 0700;
    if (mkdir(made.c_str(), kOwnerAlone) == 0 || errno == EEXIST) continue;
    // mkdir() also fails in a folder that this user may search but not write; only a missing folder
    // is an error.
    const std::error_code why(errno, std::generic_category());
    if (access(made.c_str(), F_OK) != 0) return why;
  }
  std::error_code unknown;
  if (std::filesystem::is_directory(folder, unknown)) return {};
  return std::make_error_code(std::errc::not_a_directory);
}

bool IsOpenToOthers(const std::string& folder) {
  struct stat info = {};
  if (stat(folder.c_str(), &info) != 0) return false;
  return (info.st_mode & (S_IRWXG | S_IRWXO)) != 0 || info.st_uid != geteuid();
}

void WarnIfOpenToOthers(const std::string& folder) {
  if (!IsOpenToOthers(folder)) return;
  LogWarning(
      "other users of this machine can look into {}; what is written there only its owner "
      "can read, but 'chmod 700' it to hide the files' names, too",
      folder);
}

}  // namespace moestro
