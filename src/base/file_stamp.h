// SPDX-License-Identifier: MIT
// What tells a file from another one, and from itself after a change, without reading it.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace moestro {

struct FileStamp {
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t size = 0;        // bytes
  int64_t modified_ns = 0;  // nanoseconds since 1970; as fine as the file system keeps it

  bool operator==(const FileStamp&) const = default;

  // kIo. `fd`: open; `path` names it in the error.
  static Result<FileStamp> Of(const std::string& path);
  static Result<FileStamp> Of(int fd, const std::string& path);
};

}  // namespace moestro
