// SPDX-License-Identifier: MIT
// libllama maps a model's files, and would read all of them at once. While a LazyMapping lives, its
// thread's mappings of these files are made without reading anything. What is mapped then is found
// again, and anonymous memory is laid over it, which the caller fills piece by piece.
//
// The room defines the C library's mmap() and posix_madvise() for the whole program; both go
// straight on to the system unless a LazyMapping of the calling thread asks for the file.
//
// Thread rule: one LazyMapping a thread; the rest from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/file_stamp.h"
#include "base/result.h"

namespace moestro {

// Addresses that show a part of a file, whole pages.
struct MappedRange {
  std::byte* begin = nullptr;
  uint64_t length = 0;
  uint32_t file = 0;    // index into the files
  uint64_t offset = 0;  // in the file
};

class LazyMapping {
 public:
  explicit LazyMapping(std::span<const FileStamp> files);
  ~LazyMapping();
  LazyMapping(const LazyMapping&) = delete;
  LazyMapping& operator=(const LazyMapping&) = delete;

  // For mmap() and posix_madvise() of this thread.
  static LazyMapping* of_this_thread();
  // The file's index; nullopt: `fd` is none of the files.
  bool is_for(int fd, uint32_t& file) const;
  void Mapped(const MappedRange& range) { mapped_.push_back(range); }

  // What is left of the mappings: libllama gives back parts that it does not use. kIo: the system
  // does not tell.
  Result<std::vector<MappedRange>> Remaining() const;

 private:
  std::vector<FileStamp> files_;
  std::vector<MappedRange> mapped_;  // as they were made
};

// Puts anonymous memory, all zeros, in the place of each range. kNoMemory.
Status LayOver(std::span<const MappedRange> ranges);

}  // namespace moestro
