// SPDX-License-Identifier: MIT
// Anonymous, page-aligned memory: slots, caches and buffers live here, never in a file mapping, so
// that the kernel cannot take it away and a budget means what it says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>

#include "base/result.h"

namespace moestro {

// Asks for huge pages for memory that has not been touched yet; failing costs speed only.
void AdviseHugePages(void* data, uint64_t size);

class HostMemory {
 public:
  HostMemory() = default;
  // Zeroed on first touch; asks for huge pages above a few MiB (fewer page-table pages, fewer TLB
  // misses while streaming weights). kNoMemory when the address space or limit does not allow it.
  static Result<HostMemory> Allocate(uint64_t bytes);
  // Another owner's: it lives as long as `owner`.
  static HostMemory Of(std::shared_ptr<void> owner, std::span<std::byte> bytes);
  HostMemory(HostMemory&& other) noexcept;
  HostMemory& operator=(HostMemory&& other) noexcept;
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  ~HostMemory();

  // Makes bytes [offset, offset + length) resident now, as they are. A first touch costs a page of
  // zeroing, in a virtual machine a page of the host as well; while decoding that took half of all
  // time. Any thread.
  void Populate(uint64_t offset, uint64_t length) const;

  std::byte* data() const { return data_; }
  uint64_t size() const { return size_; }
  std::span<std::byte> bytes() const { return {data_, size_}; }

 private:
  std::byte* data_ = nullptr;
  uint64_t size_ = 0;
  std::shared_ptr<void> owner_;  // null: our own mapping
};

// Where large memory comes from.
struct HostMemorySource {
  std::function<Result<HostMemory>(uint64_t bytes)> allocate = HostMemory::Allocate;
  uint64_t most_bytes = std::numeric_limits<uint64_t>::max();  // of one piece
};

}  // namespace moestro
