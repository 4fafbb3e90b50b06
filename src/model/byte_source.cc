// SPDX-License-Identifier: MIT
#include "model/byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/number.h"
#include "base/result.h"

namespace moestro {
namespace {

// Large enough that a header of several megabytes takes few calls, small enough not to matter.
constexpr uint64_t kWindowBytes = 256 * kKiB;

class FileBytes final : public ByteSource {
 public:
  FileBytes(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  FileBytes(const FileBytes&) = delete;
  FileBytes& operator=(const FileBytes&) = delete;
  ~FileBytes() override { ::close(fd_); }

  Status Examine() {
    struct stat info{};
    if (::fstat(fd_, &info) != 0) {
      return Fail(Errc::kIo, "cannot examine {}: {}", path_, std::strerror(errno));
    }
    if (!S_ISREG(info.st_mode)) {
      return Fail(Errc::kIo, "cannot read {}: not a regular file; give the path of a .gguf file",
                  path_);
    }
    TRY(stamp_, FileStamp::Of(fd_, path_));
    return {};
  }

  const std::string& name() const override { return path_; }
  const FileStamp& stamp() const override { return stamp_; }

  Result<std::span<const char>> BytesAt(uint64_t offset) override {
    CHECK(offset < stamp_.size);
    window_.resize(std::min(kWindowBytes, stamp_.size - offset));
    ssize_t got = -1;
    do {
      got = ::pread(fd_, window_.data(), window_.size(), static_cast<off_t>(offset));
    } while (got < 0 && errno == EINTR);
    if (got < 0) {
      return Fail(Errc::kIo, "cannot read {} at byte {}: {}", path_, offset, std::strerror(errno));
    }
    if (got == 0) {
      return Fail(Errc::kIo, "cannot read {} at byte {}: the file became shorter", path_, offset);
    }
    return std::span<const char>(window_).first(static_cast<size_t>(got));
  }

 private:
  std::string path_;
  int fd_;
  FileStamp stamp_;
  std::vector<char> window_;
};

}  // namespace

Result<std::unique_ptr<ByteSource>> OpenFileBytes(const std::string& path) {
  // O_NONBLOCK: opening a named pipe must not wait for a writer.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return Fail(Errc::kIo, "cannot open {}: {}", path, std::strerror(errno));
  auto file = std::make_unique<FileBytes>(path, fd);
  TRY_STATUS(file->Examine());
  return file;
}

RangedBytes::RangedBytes(std::string name, uint64_t size, Fetch fetch)
    : name_(std::move(name)), stamp_{.size = size}, fetch_(std::move(fetch)) {}

Result<std::span<const char>> RangedBytes::BytesAt(uint64_t offset) {
  CHECK(offset < stamp_.size);
  if (offset < begin_ || offset - begin_ >= range_.size()) {
    // The range before goes first: only one is in memory.
    range_ = {};
    const uint64_t length = std::min(next_range_, stamp_.size - offset);
    TRY(std::string fetched, fetch_(offset, length));
    if (fetched.size() != length) {
      return Fail(Errc::kIo, "{}: {} bytes came instead of {} at byte {}", name_, fetched.size(),
                  length, offset);
    }
    range_ = std::move(fetched);
    begin_ = offset;
    next_range_ = std::min(2 * next_range_, kMostRange);
  }
  return std::span<const char>(range_).subspan(offset - begin_);
}

Result<FileCursor> FileCursor::Open(const std::string& path) {
  TRY(std::unique_ptr<ByteSource> bytes, OpenFileBytes(path));
  return FileCursor(std::move(bytes));
}

Result<std::string> FileCursor::ReadString(uint64_t limit, std::string_view what) {
  TRY(const uint64_t length, Read<uint64_t>(what));
  TRY_STATUS(CheckRemaining(length, what));
  if (length > limit) {
    return Fail(Errc::kInvalidFile, "{}: {} at byte {} is {} bytes long, at most {} make sense",
                path(), what, position_, length, limit);
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
      window_ = {};
      TRY(window_, bytes_->BytesAt(position_));
      window_begin_ = position_;
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
  if (bytes <= file_bytes() - position_) return {};
  return Fail(Errc::kInvalidFile,
              "{}: {} at byte {} needs {} more bytes, the file ends at {}; it is damaged or "
              "incomplete, fetch it again",
              path(), what, position_, bytes, file_bytes());
}

}  // namespace moestro
