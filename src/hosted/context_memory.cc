// SPDX-License-Identifier: MIT
#include "hosted/context_memory.h"

#include <dlfcn.h>
#include <ggml-backend.h>
#include <malloc.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/number.h"
#include "base/pages.h"
#include "base/result.h"
#include "compute/host_memory.h"

namespace moestro {
namespace {

// Smaller blocks are touched in a moment.
constexpr uint64_t kLarge = 8 * kMiB;
// Most blocks of a context, which has a few buffers. Within posix_memalign() nothing may throw, so
// the list is allocated before.
constexpr size_t kMostBlocks = 256;

thread_local ContextMemory* living = nullptr;

}  // namespace

ContextMemory::ContextMemory() {
  CHECK(living == nullptr);
  fresh_.reserve(kMostBlocks);
  living = this;
}

ContextMemory::~ContextMemory() { living = nullptr; }

ContextMemory* ContextMemory::of_this_thread() { return living; }

// The C library may hand out memory that was in use before.
void ContextMemory::Allocated(std::span<std::byte> block) {
  buffer_bytes_ += block.size();
  ForgetWithin(block);  // the block's place was another block's before
  if (block.size() < kLarge || fresh_.size() == kMostBlocks) return;
  const std::span<std::byte> pages = WholePages(block, PageBytes());
  if (madvise(pages.data(), pages.size(), MADV_DONTNEED) != 0) return;
  AdviseHugePages(pages.data(), pages.size());
  fresh_.push_back(pages);
}

bool ContextMemory::Clear(std::span<std::byte> buffer) {
  cleared_bytes_ += buffer.size();
  const auto within = [&](std::span<std::byte> pages) {
    return pages.data() >= buffer.data() &&
           pages.data() + pages.size() <= buffer.data() + buffer.size();
  };
  const auto pages = std::ranges::find_if(fresh_, within);
  if (pages == fresh_.end()) return false;
  const auto before = static_cast<size_t>(pages->data() - buffer.data());
  std::memset(buffer.data(), 0, before);
  std::memset(pages->data() + pages->size(), 0, buffer.size() - before - pages->size());
  ForgetWithin(buffer);  // no longer fresh from now on
  return true;
}

void ContextMemory::ForgetWithin(std::span<std::byte> bytes) {
  std::erase_if(fresh_, [&](std::span<std::byte> pages) {
    return pages.data() < bytes.data() + bytes.size() && bytes.data() < pages.data() + pages.size();
  });
}

}  // namespace moestro

// Replaces the libraries' functions: see the header.
// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name): the system has other names.
extern "C" int posix_memalign(void** block, size_t alignment, size_t size) noexcept {
  if (!std::has_single_bit(alignment) || alignment % sizeof(void*) != 0) return EINVAL;
  void* const memory = memalign(alignment, size);
  if (memory == nullptr) return ENOMEM;
  if (moestro::ContextMemory* const its = moestro::ContextMemory::of_this_thread()) {
    its->Allocated({static_cast<std::byte*>(memory), size});
  }
  *block = memory;
  return 0;
}

// Weak: a backend in a test defines one that fails.
extern "C" [[gnu::weak]] void ggml_backend_buffer_clear(ggml_backend_buffer_t buffer,
                                                        uint8_t value) {
  moestro::ContextMemory* const its = moestro::ContextMemory::of_this_thread();
  if (its != nullptr && value == 0 && ggml_backend_buffer_is_host(buffer)) {
    auto* const begin = static_cast<std::byte*>(ggml_backend_buffer_get_base(buffer));
    if (its->Clear({begin, ggml_backend_buffer_get_size(buffer)})) return;
  }
  using Library = void (*)(ggml_backend_buffer_t, uint8_t);
  static const auto library =
      reinterpret_cast<Library>(dlsym(RTLD_NEXT, "ggml_backend_buffer_clear"));
  CHECK(library != nullptr);
  library(buffer, value);
}
// NOLINTEND(readability-inconsistent-declaration-parameter-name)
