// SPDX-License-Identifier: MIT
// A file in memory under one name for a whole fuzz run. It stays open: libFuzzer leaves through
// exit().
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/binary_file.h"
#include "base/hash.h"
#include "base/result.h"
#include "base/text.h"

namespace moestro {

inline std::string_view AsText(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

class MemoryFile {
 public:
  MemoryFile() : fd_(memfd_create("fuzz", MFD_CLOEXEC)) { CHECK(fd_ >= 0); }

  // Replaces what is in it and gives the path to open.
  std::string Fill(std::string_view bytes) const {
    CHECK(ftruncate(fd_, 0) == 0);
    for (size_t done = 0; done < bytes.size();) {
      const ssize_t wrote =
          pwrite(fd_, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
      CHECK(wrote > 0);
      done += static_cast<size_t>(wrote);
    }
    return Format("/proc/self/fd/{}", fd_);
  }
  // Fills it with a file whose last bytes are the checksum of those before: the reader would look
  // at nothing else otherwise. Data that ends with 0xFF stays as it is.
  std::string FillSummed(const uint8_t* data, size_t size) const {
    std::string bytes(AsText(data, size));
    if (size == 0 || data[size - 1] != 0xFF) {
      Fnv1a sum;
      sum.Add(bytes);
      AppendNumber(bytes, sum.value());
    }
    return Fill(bytes);
  }
  void Grow(size_t bytes) const { CHECK(ftruncate(fd_, static_cast<off_t>(bytes)) == 0); }

 private:
  int fd_;
};

}  // namespace moestro
