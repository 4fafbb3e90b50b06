// SPDX-License-Identifier: MIT
#include "serve/api_keys.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "base/terminal.h"
#include "serve/http_message.h"

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

// True for credentials of systemd and secrets of containers: these are given to this process alone,
// and their modes mean nothing and cannot be changed.
bool IsSecretPlace(std::string_view path) {
  const char* credentials = std::getenv("CREDENTIALS_DIRECTORY");
  const std::string folder = credentials == nullptr ? "" : credentials;
  return (folder.starts_with('/') && path.starts_with(folder + "/")) ||
         path.starts_with("/run/secrets/");
}

// A pipe will do as well as a file.
Result<std::string> ReadBytes(const std::string& path) {
  constexpr size_t kMostBytes = size_t{1} << 20U;
  errno = 0;
  std::ifstream file(path);
  std::string bytes(kMostBytes + 1, '\0');
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<size_t>(file.gcount()));
  if (bytes.size() > kMostBytes) {
    return Fail(Errc::kUsage, "{} has more than {} bytes; a key stands on a line of its own", path,
                kMostBytes);
  }
  if (!file.eof()) {
    return Fail(Errc::kIo, "cannot read the keys in {}: {}", path, std::strerror(errno));
  }
  return bytes;
}

bool IsBlankEnd(char c) { return c == '\r' || c == ' ' || c == '\t'; }

// The reason why no header can hold the key; nullptr: none.
const char* WhyUnsendable(std::string_view key) {
  if (key.starts_with("\xef\xbb\xbf")) {
    return "the file begins with a byte order mark (save it as UTF-8 without one)";
  }
  if (key.starts_with(' ') || key.starts_with('\t')) return "it begins with a blank";
  const auto is_plain = [](char c) { return c >= ' ' && c <= '~'; };
  if (std::ranges::all_of(key, is_plain)) return nullptr;
  return "it has a tab, a control character or a letter that is not ASCII";
}

}  // namespace

Result<std::vector<std::string>> ReadKeyFile(const std::string& path) {
  std::vector<std::string> keys;
  TRY(const std::string bytes, ReadBytes(path));
  std::string_view rest = bytes;
  for (size_t number = 1; !rest.empty(); ++number) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    while (!line.empty() && IsBlankEnd(line.back())) line.remove_suffix(1);
    if (line.empty() || line.starts_with('#')) continue;
    if (const char* wrong = WhyUnsendable(line); wrong != nullptr) {
      return Fail(Errc::kUsage, "{}, line {}: {}, so that no client can send it as a key", path,
                  number, wrong);
    }
    keys.emplace_back(line);
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
    which = (is_it * (i + 1)) + ((1 - is_it) * which);  // equal work for every key
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
