// SPDX-License-Identifier: MIT
#include "base/file_stamp.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>

namespace moestro {
namespace {

Result<FileStamp> StampOf(int failed, const struct stat& info, const std::string& path) {
  if (failed != 0) return Fail(Errc::kIo, "cannot examine {}: {}", path, std::strerror(errno));
  constexpr int64_t kNanoseconds = 1'000'000'000;
  return FileStamp{.device = info.st_dev,
                   .inode = info.st_ino,
                   .size = static_cast<uint64_t>(info.st_size),
                   .modified_ns = info.st_mtim.tv_sec * kNanoseconds + info.st_mtim.tv_nsec};
}

}  // namespace

Result<FileStamp> FileStamp::Of(const std::string& path) {
  struct stat info{};
  const int failed = ::stat(path.c_str(), &info);
  return StampOf(failed, info, path);
}

Result<FileStamp> FileStamp::Of(int fd, const std::string& path) {
  struct stat info{};
  const int failed = ::fstat(fd, &info);
  return StampOf(failed, info, path);
}

}  // namespace moestro
