// SPDX-License-Identifier: MIT
#include "serve/api_keys.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "base/log.h"
#include "serve/http_head.h"

namespace moestro {
namespace {

// One read of `given` for each byte of `known`. An empty key is no key.
bool IsSame(std::string_view known, std::string_view given) {
  if (given.empty()) return false;
  size_t at = 0;
  // volatile: nothing may be concluded before the last byte.
  volatile size_t difference = known.size() ^ given.size();
  for (const char c : known) {
    difference = difference | static_cast<unsigned char>(c ^ given[at]);
    at = at + 1 < given.size() ? at + 1 : 0;
  }
  return difference == 0;
}

// Credentials of systemd and secrets of containers are given to this process alone; their modes say
// nothing, and nobody can change them.
bool IsSecretPlace(std::string_view path) {
  const char* credentials = std::getenv("CREDENTIALS_DIRECTORY");
  const std::string folder = credentials == nullptr ? "" : credentials;
  return (folder.starts_with('/') && path.starts_with(folder + "/")) ||
         path.starts_with("/run/secrets/");
}

}  // namespace

Result<std::vector<std::string>> ReadKeyFile(const std::string& path) {
  std::vector<std::string> keys;
  errno = 0;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (!line.empty()) keys.push_back(line);
  }
  if (!file.eof()) {
    return Fail(Errc::kIo, "cannot read the keys in {}: {}", path, std::strerror(errno));
  }
  if (keys.empty()) {
    return Fail(Errc::kUsage, "{} holds no key; write one on a line of its own", path);
  }
  struct stat info = {};
  if (!IsSecretPlace(path) && stat(path.c_str(), &info) == 0 &&
      (info.st_mode & (S_IRGRP | S_IROTH)) != 0) {
    LogWarning("the keys in {} can be read by other users of this machine; chmod 600 it", path);
  }
  return keys;
}

uint32_t WhichKey(std::span<const std::string> keys, std::string_view given) {
  uint32_t which = 0;
  for (uint32_t i = 0; i < keys.size(); ++i) {
    const auto is_it = static_cast<uint32_t>(IsSame(keys[i], given));
    which = (is_it * (i + 1)) + ((1 - is_it) * which);  // the same work for each key
  }
  return which;
}

std::string BearerOf(std::string_view authorization) {
  constexpr std::string_view kBearer = "bearer ";
  if (!HasIgnoringCase(authorization.substr(0, kBearer.size()), kBearer)) return {};
  authorization.remove_prefix(kBearer.size());
  while (authorization.starts_with(' ')) authorization.remove_prefix(1);
  return std::string(authorization);
}

}  // namespace moestro
