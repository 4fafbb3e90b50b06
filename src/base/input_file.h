// SPDX-License-Identifier: MIT
// Files that are read: their descriptors, small ones, and whether they are still those that were
// opened.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/work_limit.h"

namespace moestro {

// Owns a file descriptor.

class UniqueFd {
 public:
  explicit UniqueFd(int fd = -1) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

// Opens paths that must be files, and reads small files such as those of /proc and /sys: they may
// be missing, endless, binary or no files.

// Opens a file for reading. Waits for no pipe. kIo: the path cannot be opened, or is no file; the
// message names its kind.
Result<UniqueFd> OpenRegularFile(const std::string& path);

// Reads a whole file. kIo: as OpenRegularFile(); kInvalidFile: more than `most` bytes.
Result<std::string> ReadRegularFile(const std::string& path, uint64_t most);

// True if no file has this name, or can have it. False also where that cannot be found out; opening
// then gives the reason.
bool IsAbsent(const std::string& path);

// The beginning of a regular file, at most `most` bytes. Waits for no pipe. nullopt: the file
// cannot be read.
std::optional<std::string> ReadSmallFile(const std::string& path, size_t most = 64 * 1024);

// The file's first line without blanks around it, if short and printable; else empty.
std::string ReadWord(const std::string& path);

// The number behind `field` in a text of "Field: 123" lines; nullopt: no such line, or no number of
// 64 bits.
std::optional<uint64_t> FieldOf(std::string_view text, std::string_view field);

// Distinguishes a file from other files, and from its own later content, without reading it.

struct FileStamp {
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t size = 0;        // bytes
  int64_t modified_ns = 0;  // nanoseconds since 1970, at the file system's resolution

  bool operator==(const FileStamp&) const = default;

  // kIo. `fd`: open; `path` is for the error.
  static Result<FileStamp> Of(const std::string& path);
  static Result<FileStamp> Of(int fd, const std::string& path);
};

// Checks that files in use are still those that were opened. A file that is written in place, or
// another one under its name, ends the work: bytes of two files must not meet in one result.
//
// Thread rule: one thread.

struct WatchedFile {
  std::string path;
  FileStamp stamp;  // at opening
};

class FileWatch {
 public:
  FileWatch() = default;  // without files
  // `clock` must outlive this.
  FileWatch(std::vector<WatchedFile> files, const Clock& clock)
      : files_(std::move(files)), clock_(&clock) {}

  // Checks now: kInvalidFile names a file that has changed. A file that has only lost its name is
  // unchanged.
  Status Look();
  // Looks if the last look was a second ago; costs one reading of the clock otherwise.
  Status LookNowAndThen();

 private:
  std::vector<WatchedFile> files_;
  const Clock* clock_ = nullptr;
  double last_look_ = 0.0;
};

}  // namespace moestro
