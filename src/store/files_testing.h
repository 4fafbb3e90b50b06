// SPDX-License-Identifier: MIT
// Helpers of this module's tests: temporary files with random bytes, aligned memory.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/number.h"

namespace moestro {

inline std::vector<std::byte> RandomBytes(size_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(n);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

// A directory of its own below `parent`, removed with all it holds.
class TempDir {
 public:
  explicit TempDir(const std::filesystem::path& parent = std::filesystem::temp_directory_path()) {
    std::string name = (parent / "moestro-store-XXXXXX").string();
    const char* made = ::mkdtemp(name.data());
    if (made != nullptr) path_ = made;
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  std::string Write(const std::string& name, std::span<const std::byte> bytes) const {
    const std::string file = (path_ / name).string();
    std::ofstream out(file, std::ios::binary);
    for (const std::byte b : bytes) out.put(static_cast<char>(b));
    return file;
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// The bytes as an ordinary stream sees them.
inline std::vector<std::byte> Slurp(const std::string& path, uint64_t offset, uint64_t length) {
  std::ifstream in(path, std::ios::binary);
  in.seekg(static_cast<std::streamoff>(offset));
  std::string text(length, '\0');
  in.read(text.data(), static_cast<std::streamsize>(length));
  std::vector<std::byte> bytes(static_cast<size_t>(in.gcount()));
  std::ranges::transform(text.begin(), text.begin() + in.gcount(), bytes.begin(),
                         [](char c) { return static_cast<std::byte>(c); });
  return bytes;
}

class AlignedMemory {
 public:
  explicit AlignedMemory(uint64_t size, uint64_t alignment = 4096)
      : size_(AlignUp(size, alignment)),
        data_(static_cast<std::byte*>(std::aligned_alloc(alignment, size_)), &std::free) {
    std::fill_n(data_.get(), size_, std::byte{0});
  }
  std::span<std::byte> span() const { return {data_.get(), size_}; }

 private:
  uint64_t size_;
  std::unique_ptr<std::byte, decltype(&std::free)> data_;
};

}  // namespace moestro
