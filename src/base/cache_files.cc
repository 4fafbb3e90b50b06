// SPDX-License-Identifier: MIT
#include "base/cache_files.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "base/terminal.h"
#include "base/text.h"

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

std::string ReadOwnFile(const std::string& path, size_t most) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
  if (fd < 0) return {};
  struct stat info{};
  const bool is_ours = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode) &&
                       info.st_uid == ::geteuid() && (info.st_mode & (S_IWGRP | S_IWOTH)) == 0 &&
                       static_cast<uint64_t>(info.st_size) <= most;
  std::string text(is_ours ? static_cast<size_t>(info.st_size) : 0, '\0');
  const ssize_t got = is_ours ? ::pread(fd, text.data(), text.size(), 0) : 0;
  ::close(fd);
  return got == static_cast<ssize_t>(text.size()) ? text : std::string();
}

bool WriteOwnFile(const std::string& path, std::string_view content) {
  struct rlimit most{};  // a longer file would end the process
  if (::getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur < content.size()) {
    errno = EFBIG;
    return false;
  }
  // Further names, in case killed processes with the same number have left files.
  constexpr int kMostNames = 1000;
  std::string aside;
  int fd = -1;
  errno = EEXIST;
  for (int n = 0; n < kMostNames && fd < 0 && errno == EEXIST; ++n) {
    aside = Format("{}.{}-{}.partial", path, ::getpid(), n);
    fd = ::open(aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
  }
  if (fd < 0) return false;
  const bool is_written =
      ::write(fd, content.data(), content.size()) == static_cast<ssize_t>(content.size());
  const bool is_closed = ::close(fd) == 0;
  if (is_written && is_closed && ::rename(aside.c_str(), path.c_str()) == 0) return true;
  const int error = errno;
  ::unlink(aside.c_str());
  errno = error;
  return false;
}

}  // namespace moestro
