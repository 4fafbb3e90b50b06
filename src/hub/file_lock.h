// SPDX-License-Identifier: MIT
// A lock between processes as the hub's own client takes it: flock on a file of its own, which
// stays there. Released when this is destroyed, and by the kernel when the process ends. Move-only.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"

namespace moestro {

class FileLock {
 public:
  // nullopt: another holds it. kIo: the file cannot be made.
  static Result<std::optional<FileLock>> Try(const std::string& path);

  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;
  ~FileLock();

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace moestro
