// SPDX-License-Identifier: MIT
// Distinguishes a file from other files, and from its own later content, without reading it.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace moestro {

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

}  // namespace moestro
