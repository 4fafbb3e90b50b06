// SPDX-License-Identifier: MIT
// Files opened for reading past the page cache where the file system allows it, for all readers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace moestro {

struct OpenFile {
  UniqueFd fd;
  bool is_direct = false;  // O_DIRECT, proven by a read
  uint64_t block = 4096;   // offsets, lengths and addresses must be multiples of this
};

class OpenFiles {
 public:
  // The alignment of every read, never below this: a page.
  static constexpr uint64_t kMinBlock = 4096;

  // Fails with kIo naming the path and errno's text, also for anything but files and block devices.
  static Result<OpenFiles> Open(const std::vector<std::string>& paths);

  size_t size() const { return files_.size(); }
  const OpenFile& operator[](size_t i) const { return files_[i]; }
  uint64_t block() const { return block_; }  // the largest that any of the files needs
  std::string description() const;           // "O_DIRECT", "buffered", "2 of 3 files O_DIRECT"

  // Call when a read of this range is done: the pages of a buffered file leave the page cache,
  // which counts against the same memory limit as the expert slots. Does nothing for direct files.
  void DropCache(size_t file, uint64_t offset, uint64_t length) const;

 private:
  std::vector<OpenFile> files_;
  uint64_t block_ = kMinBlock;
};

// errno's text: "No such file or directory".
std::string ErrnoText(int error);

}  // namespace moestro
