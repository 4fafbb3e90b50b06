// SPDX-License-Identifier: MIT
#include "hub/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace moestro {

Result<std::optional<FileLock>> FileLock::Try(const std::string& path) {
  constexpr mode_t kMode = 0644;
  while (true) {
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kMode);
    if (fd < 0) {
      return Fail(Errc::kIo, "cannot make the lock {}: {}", path, std::strerror(errno));
    }
    FileLock lock(fd);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) return std::nullopt;
      if (errno == EINTR) continue;
      return Fail(Errc::kIo, "cannot lock {}: {}", path, std::strerror(errno));
    }
    // Somebody may have removed the file between the two calls: a lock that others do not see.
    struct stat ours{};
    struct stat named{};
    if (fstat(fd, &ours) == 0 && stat(path.c_str(), &named) == 0 && ours.st_ino == named.st_ino &&
        ours.st_dev == named.st_dev) {
      return std::optional(std::move(lock));
    }
  }
}

FileLock::FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

FileLock::~FileLock() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace moestro
