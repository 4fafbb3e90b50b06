// SPDX-License-Identifier: MIT
#include "base/own_file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>

#include "base/format.h"

namespace moestro {

std::string ReadOwnFile(const std::string& path, size_t bytes) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
  if (fd < 0) return {};
  struct stat info{};
  const bool is_ours = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode) &&
                       info.st_uid == ::geteuid() && (info.st_mode & (S_IWGRP | S_IWOTH)) == 0 &&
                       static_cast<uint64_t>(info.st_size) == bytes;
  std::string text(is_ours ? bytes : 0, '\0');
  const ssize_t got = is_ours ? ::pread(fd, text.data(), text.size(), 0) : 0;
  ::close(fd);
  return got == static_cast<ssize_t>(bytes) ? text : std::string();
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
