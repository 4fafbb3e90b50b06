// SPDX-License-Identifier: MIT
// The source of the bytes of a model's header: a file on this machine, or ranges of a remote file.
//
// Thread rule: one thread for each source.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/file_stamp.h"
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

}  // namespace moestro
