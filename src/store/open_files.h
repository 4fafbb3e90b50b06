// SPDX-License-Identifier: MIT
// Files opened for reading past the page cache where the file system allows it, for all readers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/input_file.h"
#include "base/pages.h"
#include "base/result.h"
#include "core/extent.h"

namespace moestro {

struct OpenFile {
  UniqueFd fd;
  bool is_direct = false;  // O_DIRECT, proven by a read
  uint64_t block = 0;      // offsets, lengths and addresses must be multiples of this
};

class OpenFiles {
 public:
  // The alignment of every read is at least `least_block` bytes, usually a page. A file whose disk
  // needs more than kMostPageBytes is read through the page cache.
  // Fails with kIo naming the path and errno's text, also for anything but files and block devices.
  // REQUIRES: least_block is a power of two from 512 to kMostPageBytes.
  static Result<OpenFiles> Open(const std::vector<std::string>& paths,
                                uint64_t least_block = PageBytes());

  size_t size() const { return files_.size(); }
  const OpenFile& operator[](size_t i) const { return files_[i]; }
  uint64_t block() const { return block_; }  // the largest that any of the files needs
  std::string description() const;           // "O_DIRECT", "buffered", "2 of 3 files O_DIRECT"

  // Call when a read of this range is done: the pages of a buffered file leave the page cache,
  // which counts against the same memory limit as the expert slots. Does nothing for direct files.
  void DropCache(size_t file, uint64_t offset, uint64_t length) const;

 private:
  explicit OpenFiles(uint64_t block) : block_(block) {}

  std::vector<OpenFile> files_;
  uint64_t block_;
};

// errno's text: "No such file or directory".
std::string ErrnoText(int error);

// Reads parts of files one at a time, past the page cache where the file system allows it: for work
// that goes through a model once. The engine reads by a queue (read_queue.h) instead.

// Bytes that were read, and the memory they lie in.
struct ExtentBytes {
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory;
  std::span<const std::byte> bytes;
};

class ExtentReader {
 public:
  // Fails with kIo as OpenFiles::Open() does.
  static Result<ExtentReader> Open(const std::vector<std::string>& paths);

  // Reads `extent`, whose file indexes the paths. Any thread may call this, several at a time.
  // Fails with kIo, naming file and place: a device error, a file that has become shorter.
  Result<ExtentBytes> Read(const Extent& extent) const;

 private:
  ExtentReader(std::vector<std::string> paths, OpenFiles files)
      : paths_(std::move(paths)), files_(std::move(files)) {}

  std::vector<std::string> paths_;
  OpenFiles files_;
};

}  // namespace moestro
