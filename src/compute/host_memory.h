// SPDX-License-Identifier: MIT
// Anonymous memory that begins at a multiple of kMostPageBytes: slots, caches and buffers live
// here, never in a file mapping, so that the kernel cannot take pages away and a budget holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>

#include "base/result.h"

namespace moestro {

// Advises huge pages for untouched memory; a failure costs speed only.
void AdviseHugePages(void* data, uint64_t size);

class HostMemory {
 public:
  HostMemory() = default;
  // Zeroed on first touch; advises huge pages above a few MiB (fewer page-table pages, fewer TLB
  // misses while streaming weights). kNoMemory: the address space or a limit does not allow the
  // size.
  static Result<HostMemory> Allocate(uint64_t bytes);
  // Memory of another owner, valid as long as `owner`.
  static HostMemory Of(std::shared_ptr<void> owner, std::span<std::byte> bytes);
  HostMemory(HostMemory&& other) noexcept;
  HostMemory& operator=(HostMemory&& other) noexcept;
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  ~HostMemory();

  // Makes bytes [offset, offset + length) resident now, with their content. A first touch costs the
  // zeroing of a page, in a virtual machine also a page of the host; during decode that took half
  // of all time. Any thread.
  void Populate(uint64_t offset, uint64_t length) const;

  std::byte* data() const { return data_; }
  uint64_t size() const { return size_; }
  std::span<std::byte> bytes() const { return {data_, size_}; }

 private:
  std::byte* data_ = nullptr;
  uint64_t size_ = 0;
  std::shared_ptr<void> owner_;  // null: our own mapping
};

// A way to allocate large memory.
struct HostMemorySource {
  std::function<Result<HostMemory>(uint64_t bytes)> allocate = HostMemory::Allocate;
  uint64_t most_bytes = std::numeric_limits<uint64_t>::max();  // bytes of one piece, at most
};

}  // namespace moestro
