// SPDX-License-Identifier: MIT
// libllama maps a model's files, and would read all of them at once. While a LazyMapping lives,
// mappings of its files by its thread read nothing. The caller can list these mappings, put
// anonymous memory over them and fill it piece by piece.
//
// This folder defines the C library's mmap() and posix_madvise() for the whole program. Both call
// the system directly, unless a LazyMapping of the calling thread has the file.
//
// Thread rule: one LazyMapping a thread; the rest from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/input_file.h"
#include "base/result.h"

namespace moestro {

// Addresses of a mapped part of a file, in whole pages.
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
  // The file's index; nullopt: `fd` is not one of the files.
  bool is_for(int fd, uint32_t& file) const;
  void Mapped(const MappedRange& range) { mapped_.push_back(range); }

  // The parts of the mappings that still exist: libllama unmaps parts that it does not use. kIo:
  // the system does not list them.
  Result<std::vector<MappedRange>> Remaining() const;

 private:
  std::vector<FileStamp> files_;
  std::vector<MappedRange> mapped_;  // mappings as they were made
};

// Replaces whole pages of a mapping by anonymous memory with all zeros. kNoMemory.
Status LayOver(std::span<std::byte> pages);

}  // namespace moestro
