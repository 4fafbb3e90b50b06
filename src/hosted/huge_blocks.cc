// SPDX-License-Identifier: MIT
#include "hosted/huge_blocks.h"

#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdlib>

#include "base/check.h"
#include "device/host_memory.h"

namespace moestro {
namespace {

thread_local bool are_wanted = false;

}  // namespace

HugeBlocks::HugeBlocks() {
  CHECK(!are_wanted);
  are_wanted = true;
}

HugeBlocks::~HugeBlocks() { are_wanted = false; }

}  // namespace moestro

// In place of the C library's: see the header.
// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): the system has other names.
extern "C" int posix_memalign(void** block, size_t alignment, size_t size) noexcept {
  if (!std::has_single_bit(alignment) || alignment % sizeof(void*) != 0) return EINVAL;
  void* const memory = aligned_alloc(alignment, size);
  if (memory == nullptr) return ENOMEM;
  if (moestro::are_wanted) moestro::AdviseHugePages(memory, size);
  *block = memory;
  return 0;
}
