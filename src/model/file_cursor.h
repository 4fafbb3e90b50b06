// SPDX-License-Identifier: MIT
// Reads the front of a file forwards, never past its end: every request is checked against the size
// of the file before memory is asked for. One thread.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/file_stamp.h"
#include "base/result.h"

namespace moestro {

class FileCursor {
 public:
  // kIo if `path` is not a readable regular file.
  static Result<FileCursor> Open(const std::string& path);
  FileCursor(FileCursor&& other) noexcept;
  FileCursor& operator=(FileCursor&&) = delete;
  ~FileCursor();

  const std::string& path() const { return path_; }
  uint64_t file_bytes() const { return stamp_.size; }
  const FileStamp& stamp() const { return stamp_; }  // when the file was opened
  uint64_t position() const { return position_; }

  // The next bytes as a little-endian number. `what` names it for the error: kInvalidFile if the
  // file ends first, kIo if the device fails.
  template <class T>
    requires std::is_arithmetic_v<T>
  Result<T> Read(std::string_view what) {
    static_assert(std::endian::native == std::endian::little);
    T value{};
    TRY_STATUS(ReadBytes(&value, sizeof(value), what));
    return value;
  }
  // A 64-bit length and that many bytes; kInvalidFile above `limit`.
  Result<std::string> ReadString(uint64_t limit, std::string_view what);
  Status ReadBytes(void* to, uint64_t bytes, std::string_view what);
  Status Skip(uint64_t bytes, std::string_view what);

 private:
  FileCursor(std::string path, int fd);
  Status CheckRemaining(uint64_t bytes, std::string_view what) const;
  Status FillWindow();

  std::string path_;
  int fd_ = -1;
  FileStamp stamp_;
  uint64_t position_ = 0;
  std::vector<char> window_;  // file bytes from window_begin_ on
  uint64_t window_begin_ = 0;
};

}  // namespace moestro
