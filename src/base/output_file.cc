// SPDX-License-Identifier: MIT
#include "base/output_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/bytes.h"
#include "base/format.h"

namespace moestro {
namespace {

constexpr uint64_t kWindow = 16 * kMiB;  // at most two of these are dirty

// Less the user's umask.
mode_t ModeFor(FileReaders readers) { return readers == FileReaders::kOwner ? 0600 : 0666; }

std::string FolderOf(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

// Where the file is while it has a name but not yet its own.
std::string TemporaryName(const std::string& path) {
  return Format("{}.{}.partial", path, getpid());
}

}  // namespace

Result<OutputFile> OutputFile::Create(const std::string& path, FileReaders readers) {
  struct stat there = {};
  if (stat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode)) {  // a device, a folder
    return Fail(Errc::kIo, "cannot write {}: it is there, and no file", path);
  }
  const mode_t mode = ModeFor(readers);
  const std::string folder = FolderOf(path);
  int fd = open(folder.c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, mode);
  if (fd >= 0) return OutputFile(fd, path, "");
  // File systems without nameless files say one of these two.
  if (errno != EOPNOTSUPP && errno != EISDIR) {
    return Fail(Errc::kIo, "cannot create a file in {}: {}", folder, std::strerror(errno));
  }
  const std::string temporary = TemporaryName(path);
  fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (fd < 0) {
    return Fail(Errc::kIo, "cannot create {}: {}", temporary, std::strerror(errno));
  }
  return OutputFile(fd, path, temporary);
}

OutputFile::OutputFile(int fd, std::string path, std::string unkept_path)
    : fd_(fd), path_(std::move(path)), unkept_path_(std::move(unkept_path)) {}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      path_(std::move(other.path_)),
      unkept_path_(std::exchange(other.unkept_path_, {})),
      size_(other.size_),
      flushing_(other.flushing_),
      flushed_(other.flushed_) {}

OutputFile::~OutputFile() {
  if (fd_ >= 0) close(fd_);
  if (!unkept_path_.empty()) unlink(unkept_path_.c_str());
}

Status OutputFile::Write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Failed("write");
    bytes = bytes.subspan(static_cast<size_t>(written));
    size_ += static_cast<uint64_t>(written);
  }
  if (size_ - flushing_ >= kWindow) Flush();
  return {};
}

Status OutputFile::Skip(uint64_t bytes) {
  const auto end = static_cast<off_t>(size_ + bytes);
  if (ftruncate(fd_, end) != 0 || lseek(fd_, end, SEEK_SET) != end) return Failed("write");
  size_ += bytes;
  Flush();
  return {};
}

// Both calls are hints: a file system without them costs page cache, not correctness.
void OutputFile::Flush() {
  const auto older = static_cast<off_t>(flushed_);
  const auto newer = static_cast<off_t>(flushing_);
  const auto end = static_cast<off_t>(size_);
  sync_file_range(fd_, newer, end - newer, SYNC_FILE_RANGE_WRITE);
  if (newer > older) {
    sync_file_range(
        fd_, older, newer - older,
        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
    posix_fadvise(fd_, older, newer - older, POSIX_FADV_DONTNEED);
  }
  flushed_ = flushing_;
  flushing_ = size_;
}

Status OutputFile::Publish() {
  if (fsync(fd_) != 0) return Failed("flush");
  posix_fadvise(fd_, 0, 0, POSIX_FADV_DONTNEED);
  if (unkept_path_.empty()) {
    // A link cannot replace a file, a rename can: hence two steps.
    const std::string temporary = TemporaryName(path_);
    const std::string self = Format("/proc/self/fd/{}", fd_);
    if (linkat(AT_FDCWD, self.c_str(), AT_FDCWD, temporary.c_str(), AT_SYMLINK_FOLLOW) != 0) {
      return Failed("name");
    }
    unkept_path_ = temporary;
  }
  if (close(std::exchange(fd_, -1)) != 0) return Failed("close");
  if (rename(unkept_path_.c_str(), path_.c_str()) != 0) return Failed("name");
  unkept_path_ = path_;
  return {};
}

Status OutputFile::Failed(const char* what) const {
  return Fail(Errc::kIo, "cannot {} {} at {}: {}", what, path_, FormatBytes(size_),
              std::strerror(errno));
}

Result<uint64_t> FreeBytesFor(const std::string& path) {
  const std::string folder = FolderOf(path);
  struct statvfs info = {};
  if (statvfs(folder.c_str(), &info) != 0) {
    return Fail(Errc::kIo, "cannot write into folder {}: {}", folder, std::strerror(errno));
  }
  return uint64_t{info.f_bavail} * info.f_frsize;
}

std::string NearestFolder(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code unknown;
  fs::path at = fs::absolute(folder, unknown);
  while (at.has_relative_path() && !fs::is_directory(at, unknown)) at = at.parent_path();
  return at.string();
}

Result<uint64_t> FreeBytesAt(const std::string& folder) {
  return FreeBytesFor((std::filesystem::path(NearestFolder(folder)) / "x").string());
}

Result<bool> LiesInMemory(const std::string& folder) {
  struct statfs info = {};
  if (statfs(folder.c_str(), &info) != 0) {
    return Fail(Errc::kIo, "cannot examine folder {}: {}", folder, std::strerror(errno));
  }
  return info.f_type == TMPFS_MAGIC || info.f_type == RAMFS_MAGIC;
}

}  // namespace moestro
