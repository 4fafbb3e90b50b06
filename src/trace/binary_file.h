// SPDX-License-Identifier: MIT
// What the binary files of this folder share: little-endian numbers one after the other, and a
// checksum of everything before it at the end.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/result.h"
#include "core/ids.h"

namespace moestro {

static_assert(std::endian::native == std::endian::little);

inline constexpr size_t kChecksumBytes = 8;
inline constexpr size_t kFileWindow = kMiB;  // bytes written or read at a time

// Of one expert id where there are so many experts.
inline size_t IdBytes(uint32_t n_expert) { return n_expert <= 256 ? 1 : 2; }

template <class T>
void Append(std::string& bytes, T value) {
  char raw[sizeof(T)];
  std::memcpy(raw, &value, sizeof(T));
  bytes.append(raw, sizeof(T));
}

inline void AppendIds(std::string& bytes, std::span<const ExpertId> ids, size_t id_bytes) {
  for (const ExpertId id : ids) {
    if (id_bytes == 1) {
      Append(bytes, static_cast<uint8_t>(id.value));
    } else {
      Append(bytes, id.value);
    }
  }
}

// REQUIRES: what is taken is there.
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
  void TakeIds(std::span<ExpertId> ids, size_t id_bytes) {
    for (ExpertId& id : ids) id.value = id_bytes == 1 ? Take<uint8_t>() : Take<uint16_t>();
  }

 private:
  std::string_view bytes_;
};

class InputFile {
 public:
  // `what` it should be and the `remedy` if it is not; both go into messages. Errors: kIo.
  static Result<InputFile> Open(const std::string& path, std::string_view what,
                                std::string_view remedy);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;
  ~InputFile();

  uint64_t size() const { return size_; }
  const std::string& path() const { return path_; }

  // REQUIRES: offset + bytes <= size().
  Result<std::string> Read(uint64_t offset, size_t bytes) const;
  // Compares the last 8 bytes with those before. Needs one window of memory. REQUIRES: size() >= 8.
  Status CheckSum() const;

  // kInvalidFile: it is shorter or longer than `expected` says; it is wrong in another way.
  std::unexpected<Error> CutShort(std::string_view expected) const;
  std::unexpected<Error> Damaged(std::string_view what) const;

 private:
  InputFile(int fd, std::string path, std::string_view remedy)
      : fd_(fd), path_(std::move(path)), remedy_(remedy) {}

  int fd_;
  uint64_t size_ = 0;
  std::string path_;
  std::string remedy_;
};

// kIo if `path` exists and is no file: renaming a new file to it would replace a device or a pipe.
Status CheckReplaceable(const std::string& path);

}  // namespace moestro
