// SPDX-License-Identifier: MIT
// Reads the front of a file forwards, never past its end: every request is checked against the size
// of the file before memory is allocated. One thread.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/file_stamp.h"
#include "base/result.h"
#include "model/byte_source.h"

namespace moestro {

class FileCursor {
 public:
  explicit FileCursor(std::unique_ptr<ByteSource> bytes) : bytes_(std::move(bytes)) {}
  // kIo if `path` is not a readable regular file.
  static Result<FileCursor> Open(const std::string& path);

  const std::string& path() const { return bytes_->name(); }
  uint64_t file_bytes() const { return stamp().size; }
  const FileStamp& stamp() const { return bytes_->stamp(); }  // at opening
  uint64_t position() const { return position_; }

  // The next bytes as a little-endian number. Errors name the number by `what`: kInvalidFile if the
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
  Status CheckRemaining(uint64_t bytes, std::string_view what) const;

  std::unique_ptr<ByteSource> bytes_;
  uint64_t position_ = 0;
  std::span<const char> window_;  // file bytes from window_begin_ on
  uint64_t window_begin_ = 0;
};

}  // namespace moestro
