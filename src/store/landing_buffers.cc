// SPDX-License-Identifier: MIT
#include "store/landing_buffers.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cstdio>
#include <functional>

#include "base/unique_fd.h"

namespace moestro {
namespace {

constexpr uint64_t kWholePage = 2 * kMiB;

uint64_t AddressOf(const std::byte* at) { return reinterpret_cast<uintptr_t>(at); }

// A huge page of a buffer is one entry of the kernel's list since 6.12.
bool CountsHugePagesOnce() {
  utsname name = {};
  unsigned major = 0;
  unsigned minor = 0;
  if (::uname(&name) != 0 || std::sscanf(name.release, "%u.%u", &major, &minor) != 2) return false;
  return major > 6 || (major == 6 && minor >= 12);
}

// The kernel's structures for PAGEMAP_SCAN (since 6.7), declared here since the C library's headers
// may be older.
struct PageRegion {
  uint64_t start = 0;
  uint64_t end = 0;
  uint64_t categories = 0;
};
struct PageScan {
  uint64_t size = sizeof(PageScan);
  uint64_t flags = 0;
  uint64_t start = 0;
  uint64_t end = 0;
  uint64_t walk_end = 0;
  uint64_t regions = 0;  // address of the PageRegion array that the kernel fills
  uint64_t n_regions = 0;
  uint64_t most_pages = 0;
  uint64_t inverted = 0;
  uint64_t all_of = 0;
  uint64_t any_of = 0;
  uint64_t told = 0;
};
constexpr uint64_t kIsHuge = 1U << 6;

// The next range from `begin` on whose pages are all huge; empty if none begins before `end`, or if
// the kernel cannot report huge pages.
PageRegion NextHuge(int pagemap, uint64_t begin, uint64_t end) {
  PageRegion found;
  PageScan scan{.start = begin,
                .end = end,
                .regions = reinterpret_cast<uintptr_t>(&found),
                .n_regions = 1,
                .all_of = kIsHuge,
                .told = kIsHuge};
  return ::ioctl(pagemap, _IOWR('f', 16, PageScan), &scan) == 1 ? found : PageRegion();
}

}  // namespace

std::vector<std::span<std::byte>> LandingBuffers(std::span<const std::span<std::byte>> pieces,
                                                 uint64_t most_bytes) {
  std::vector<std::span<std::byte>> buffers;
  if (!CountsHugePagesOnce()) return buffers;
  const UniqueFd pagemap(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  if (pagemap.get() < 0) return buffers;
  for (const std::span<std::byte> piece : pieces) {
    const uint64_t address = AddressOf(piece.data());
    const uint64_t end = AlignDown(address + piece.size(), kWholePage);
    for (uint64_t at = AlignUp(address, kWholePage); at < end;) {
      const PageRegion huge = NextHuge(pagemap.get(), at, end);
      if (huge.end <= at) break;
      for (at = huge.start; at < huge.end && buffers.size() < kMostBuffers;) {
        const uint64_t size = std::min(most_bytes, huge.end - at);
        buffers.push_back(piece.subspan(at - address, size));
        at += size;
      }
      at = huge.end;
    }
  }
  std::ranges::sort(buffers, std::less(), &std::span<std::byte>::data);
  return buffers;
}

std::optional<size_t> BufferOf(std::span<const std::span<std::byte>> buffers,
                               std::span<const std::byte> memory) {
  const uint64_t begin = AddressOf(memory.data());
  const auto after = std::ranges::upper_bound(
      buffers, begin, {}, [](std::span<std::byte> one) { return AddressOf(one.data()); });
  if (after == buffers.begin()) return std::nullopt;
  const std::span<std::byte> found = *(after - 1);
  const uint64_t end = AddressOf(found.data()) + found.size();
  if (begin >= end || memory.size() > end - begin) return std::nullopt;
  return static_cast<size_t>(after - 1 - buffers.begin());
}

}  // namespace moestro
