// SPDX-License-Identifier: MIT
// The frame of our binary files: eight letters and a version at the beginning, little-endian
// numbers one after the other, and at the end a checksum of everything before.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "base/hash.h"
#include "base/input_file.h"
#include "base/number.h"
#include "base/output_file.h"
#include "base/result.h"

namespace moestro {

static_assert(std::endian::native == std::endian::little);

inline constexpr size_t kChecksumBytes = 8;
inline constexpr size_t kFileWindow = kMiB;  // bytes written or read at a time

// A kind of file. The texts go into messages.
struct FileFormat {
  std::string_view magic;   // eight letters
  uint32_t version = 1;     // the newest known version; from 1 on
  uint32_t oldest = 1;      // the oldest version that is still read
  size_t header_bytes = 0;  // magic and version included
  std::string_view what;    // "a trace"
  std::string_view origin;  // how to make one: "record one with 'moestro trace'"
  std::string_view remedy;  // for a damaged file: "copy or record it again"
};

// Magic of a shard of a run (offline/shard_file.h). Readers of whole files recognise a shard,
// so that their error can name 'moestro merge'.
inline constexpr std::string_view kShardMagic = "MOESHARD";
// kInvalidFile: the file at `path` is a shard, where `what` is expected.
std::unexpected<Error> FailShard(std::string_view path, std::string_view what);

template <class T>
void AppendNumber(std::string& bytes, T value) {
  char raw[sizeof(T)];
  std::memcpy(raw, &value, sizeof(T));
  bytes.append(raw, sizeof(T));
}

// Magic and version, with which a file begins.
inline std::string BeginHeader(const FileFormat& format) {
  std::string bytes(format.magic);
  AppendNumber(bytes, format.version);
  return bytes;
}

// REQUIRES: the bytes hold everything that Take() reads.
class Decoder {
 public:
  explicit Decoder(std::string_view bytes) : bytes_(bytes) {}

  template <class T>
  T Take() {
    std::array<char, sizeof(T)> raw{};
    bytes_.copy(raw.data(), raw.size());
    bytes_.remove_prefix(raw.size());
    return std::bit_cast<T>(raw);
  }

 private:
  std::string_view bytes_;
};

class InputFile {
 public:
  // `format` must outlive the result. Errors: kIo.
  static Result<InputFile> Open(const std::string& path, const FileFormat& format);
  uint64_t size() const { return size_; }
  const std::string& path() const { return path_; }

  // The header's bytes after magic and version, all of them. kInvalidFile: another kind of file, or
  // too short; kUnsupported: the version is newer or older than the ones that are read.
  Result<std::string> ReadHeader() const;
  // REQUIRES: offset + bytes <= size().
  Result<std::string> Read(uint64_t offset, size_t bytes) const;
  // Compares the last 8 bytes with the checksum of all bytes before. Needs one window of memory.
  // REQUIRES: size() >= 8.
  Status CheckSum() const;

  // The part after byte `begin`, as a file of `format`, which must outlive the result. Offsets
  // count from there; the checksum is still that of the whole file. REQUIRES: begin <= size().
  InputFile Rest(uint64_t begin, const FileFormat& format) &&;

  // kInvalidFile errors: the file is shorter or longer than `expected` describes; the file is
  // damaged in another way.
  std::unexpected<Error> CutShort(std::string_view expected) const;
  std::unexpected<Error> Damaged(std::string_view what) const;

 private:
  InputFile(UniqueFd fd, std::string path, const FileFormat& format)
      : fd_(std::move(fd)), path_(std::move(path)), format_(&format) {}

  Result<std::string> ReadAt(uint64_t offset, size_t bytes) const;  // of the whole file

  UniqueFd fd_;
  uint64_t begin_ = 0;  // place of byte 0 in the file
  uint64_t size_ = 0;
  std::string path_;
  const FileFormat* format_;
};

// Writes a file with such a frame and adds up the checksum. The file has its name only when
// Finish() has succeeded; otherwise nothing is left behind. Errors: kIo, naming the file and the
// reason.
class BinaryWriter {
 public:
  static Result<BinaryWriter> Create(OutputPath path, FileReaders readers = FileReaders::kByUmask);
  Status Add(std::string_view bytes);
  Status Finish();  // the checksum, and the file's name
  uint64_t size() const { return file_.size(); }

 private:
  explicit BinaryWriter(OutputFile file) : file_(std::move(file)) {}

  OutputFile file_;
  Fnv1a sum_;
};

}  // namespace moestro
