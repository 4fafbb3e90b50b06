// SPDX-License-Identifier: MIT
#include "base/pages.h"

#include <unistd.h>

namespace moestro {

uint64_t PageBytes() { return static_cast<uint64_t>(sysconf(_SC_PAGESIZE)); }

std::span<std::byte> WholePages(std::span<std::byte> memory, uint64_t page) {
  const auto begin = reinterpret_cast<uintptr_t>(memory.data());
  const uint64_t first = AlignUp(begin, page) - begin;
  const uint64_t last = AlignDown(begin + memory.size(), page) - begin;
  if (first >= memory.size() || last <= first) return {};
  return memory.subspan(first, last - first);
}

}  // namespace moestro
