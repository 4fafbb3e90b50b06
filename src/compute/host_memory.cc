// SPDX-License-Identifier: MIT
#include "compute/host_memory.h"

#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/number.h"
#include "base/pages.h"

namespace moestro {
namespace {

constexpr uint64_t kHugePage = 2 * kMiB;

// Maps `size` bytes, whole pages, from a multiple of kMostPageBytes on; MAP_FAILED and errno.
std::byte* MapAligned(uint64_t size) {
  const uint64_t more = kMostPageBytes - PageBytes();
  void* data = mmap(nullptr, size + more, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  auto* const begin = static_cast<std::byte*>(data);
  if (data == MAP_FAILED || more == 0) return begin;
  const auto address = reinterpret_cast<uintptr_t>(data);
  const uint64_t before = AlignUp(address, kMostPageBytes) - address;
  if (before > 0) munmap(begin, before);
  if (before < more) munmap(begin + before + size, more - before);
  return begin + before;
}

}  // namespace

void AdviseHugePages(void* data, uint64_t size) {
  const std::span pages = WholePages({static_cast<std::byte*>(data), size}, PageBytes());
  if (pages.size() < 4 * kHugePage) return;
  madvise(pages.data(), pages.size(), MADV_HUGEPAGE);
}

Result<HostMemory> HostMemory::Allocate(uint64_t bytes) {
  HostMemory memory;
  if (bytes == 0) return memory;
  // Sizes are not rounded to huge pages, which small buffers do not need.
  const uint64_t size = AlignUp(bytes, PageBytes());
  std::byte* const data = MapAligned(size);
  if (data == MAP_FAILED) {
    return Fail(Errc::kNoMemory, "cannot allocate {}: {}; lower --ram or --ctx", FormatBytes(bytes),
                std::strerror(errno));
  }
  AdviseHugePages(data, size);
  memory.data_ = data;
  memory.size_ = size;
  return memory;
}

HostMemory HostMemory::Of(std::shared_ptr<void> owner, std::span<std::byte> bytes) {
  HostMemory memory;
  memory.data_ = bytes.data();
  memory.size_ = bytes.size();
  memory.owner_ = std::move(owner);
  return memory;
}

HostMemory::HostMemory(HostMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      owner_(std::move(other.owner_)) {}

HostMemory& HostMemory::operator=(HostMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(owner_, other.owner_);
  return *this;
}

void HostMemory::Populate(uint64_t offset, uint64_t length) const {
#ifdef MADV_POPULATE_WRITE
  if (madvise(data_ + offset, length, MADV_POPULATE_WRITE) == 0) return;
#endif
  // Kernels before 5.14: writes to each page without changing a byte, not even one that a device
  // writes meanwhile.
  for (uint64_t at = offset; at < offset + length; at += PageBytes()) {
    std::atomic_ref(reinterpret_cast<unsigned char&>(data_[at])).fetch_or(0);
  }
}

HostMemory::~HostMemory() {
  if (data_ != nullptr && owner_ == nullptr) munmap(data_, size_);
}

}  // namespace moestro
