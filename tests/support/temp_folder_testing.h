// SPDX-License-Identifier: MIT
// A folder of its own for one test, removed afterwards.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"

namespace moestro {

class TempFolder {
 public:
  explicit TempFolder(
      const std::filesystem::path& parent = std::filesystem::temp_directory_path()) {
    static std::atomic<int> count{0};
    path_ = parent / Format("moestro-test-{}-{}", getpid(), count.fetch_add(1));
    std::filesystem::create_directories(path_);
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::string File(const std::string& name) const { return (path_ / name).string(); }
  bool is_empty() const { return std::filesystem::is_empty(path_); }

 private:
  std::filesystem::path path_;
};

// The bytes of a file; empty when it cannot be read.
inline std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes;
  std::vector<char> part(size_t{1} << 16);
  for (;;) {
    file.read(part.data(), static_cast<std::streamsize>(part.size()));
    if (file.gcount() == 0) return bytes;
    bytes.append(part.data(), static_cast<size_t>(file.gcount()));
  }
}

// Writes a new file in the place of an older one. ext4 waits for the disk where a file is cut to
// nothing and written again, a millisecond for each of thousands of damaged copies.
inline void WriteAll(const std::string& path, std::string_view bytes) {
  std::filesystem::remove(path);
  std::ofstream(path, std::ios::binary) << bytes;
}

}  // namespace moestro
