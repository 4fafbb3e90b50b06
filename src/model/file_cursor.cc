// SPDX-License-Identifier: MIT
#include "model/file_cursor.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/bytes.h"

namespace moestro {
namespace {

// Large enough that a header of several megabytes takes few calls, small enough not to matter.
constexpr uint64_t kWindowBytes = 256 * kKiB;

}  // namespace

Result<FileCursor> FileCursor::Open(const std::string& path) {
  // O_NONBLOCK: opening a named pipe must not wait for a writer.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return Fail(Errc::kIo, "cannot open {}: {}", path, std::strerror(errno));
  FileCursor cursor(path, fd);
  struct stat info{};
  if (::fstat(fd, &info) != 0) {
    return Fail(Errc::kIo, "cannot examine {}: {}", path, std::strerror(errno));
  }
  if (!S_ISREG(info.st_mode)) {
    return Fail(Errc::kIo, "cannot read {}: not a regular file; give the path of a .gguf file",
                path);
  }
  TRY(cursor.stamp_, FileStamp::Of(fd, path));
  return cursor;
}

FileCursor::FileCursor(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

FileCursor::FileCursor(FileCursor&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      stamp_(other.stamp_),
      position_(other.position_),
      window_(std::move(other.window_)),
      window_begin_(other.window_begin_) {}

FileCursor::~FileCursor() {
  if (fd_ >= 0) ::close(fd_);
}

Result<std::string> FileCursor::ReadString(uint64_t limit, std::string_view what) {
  TRY(const uint64_t length, Read<uint64_t>(what));
  TRY_STATUS(CheckRemaining(length, what));
  if (length > limit) {
    return Fail(Errc::kInvalidFile, "{}: {} at byte {} is {} bytes long, at most {} make sense",
                path_, what, position_, length, limit);
  }
  std::string text(length, '\0');
  TRY_STATUS(ReadBytes(text.data(), length, what));
  return text;
}

Status FileCursor::ReadBytes(void* to, uint64_t bytes, std::string_view what) {
  TRY_STATUS(CheckRemaining(bytes, what));
  char* out = static_cast<char*>(to);
  while (bytes > 0) {
    if (position_ < window_begin_ || position_ >= window_begin_ + window_.size()) {
      TRY_STATUS(FillWindow());
    }
    const uint64_t from = position_ - window_begin_;
    const uint64_t count = std::min<uint64_t>(bytes, window_.size() - from);
    std::memcpy(out, window_.data() + from, count);
    out += count;
    bytes -= count;
    position_ += count;
  }
  return {};
}

Status FileCursor::Skip(uint64_t bytes, std::string_view what) {
  TRY_STATUS(CheckRemaining(bytes, what));
  position_ += bytes;
  return {};
}

Status FileCursor::CheckRemaining(uint64_t bytes, std::string_view what) const {
  if (bytes <= stamp_.size - position_) return {};
  return Fail(Errc::kInvalidFile,
              "{}: {} at byte {} needs {} more bytes, the file ends at {}; it is damaged or "
              "incomplete, fetch it again",
              path_, what, position_, bytes, stamp_.size);
}

Status FileCursor::FillWindow() {
  window_.resize(std::min(kWindowBytes, stamp_.size - position_));
  window_begin_ = position_;
  ssize_t got = -1;
  do {
    got = ::pread(fd_, window_.data(), window_.size(), static_cast<off_t>(position_));
  } while (got < 0 && errno == EINTR);
  if (got < 0) {
    window_.clear();
    return Fail(Errc::kIo, "cannot read {} at byte {}: {}", path_, position_, std::strerror(errno));
  }
  window_.resize(static_cast<size_t>(got));
  if (got == 0) {
    return Fail(Errc::kIo, "cannot read {} at byte {}: the file became shorter", path_, position_);
  }
  return {};
}

}  // namespace moestro
