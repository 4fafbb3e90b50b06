// SPDX-License-Identifier: MIT
// The source of the bytes of a model's header: a file on this machine, or ranges of a remote file.
//
// Thread rule: one thread for each source.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/input_file.h"
#include "base/result.h"

namespace moestro {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // A path or an address, for errors.
  virtual const std::string& name() const = 0;
  // The file's stamp; for a file elsewhere only the size is set.
  virtual const FileStamp& stamp() const = 0;
  // Bytes from `offset` on, at least one, which live until the next call. kIo. REQUIRES: offset <
  // stamp().size.
  virtual Result<std::span<const char>> BytesAt(uint64_t offset) = 0;
};

// Opens the file, or the shard, of that name.
using OpenBytes = std::function<Result<std::unique_ptr<ByteSource>>(const std::string& name)>;

// kIo if `path` is not a readable regular file.
Result<std::unique_ptr<ByteSource>> OpenFileBytes(const std::string& path);

// A file elsewhere, read forwards in ranges: the first of kFirstRange bytes, each later one twice
// as long as the one before, up to kMostRange, so that a header of any length takes few requests.
// Holds one range.
class RangedBytes final : public ByteSource {
 public:
  static constexpr uint64_t kFirstRange = 4U << 20;
  static constexpr uint64_t kMostRange = 64U << 20;

  // Returns the file's bytes [offset, offset + length). Fails with kIo or an error of the transfer.
  using Fetch = std::function<Result<std::string>(uint64_t offset, uint64_t length)>;

  // A file of `size` bytes.
  RangedBytes(std::string name, uint64_t size, Fetch fetch);

  const std::string& name() const override { return name_; }
  const FileStamp& stamp() const override { return stamp_; }
  Result<std::span<const char>> BytesAt(uint64_t offset) override;

 private:
  std::string name_;
  FileStamp stamp_;
  Fetch fetch_;
  uint64_t next_range_ = kFirstRange;
  std::string range_;
  uint64_t begin_ = 0;  // of range_ in the file
};

// Reads the front of a file forwards, never past its end: every request is checked against the size
// of the file before memory is allocated. One thread.

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
