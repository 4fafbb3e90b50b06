// SPDX-License-Identifier: MIT
#include "hosted/context_memory.h"

#include <ggml-backend.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/number.h"
#include "base/system_limits.h"
#include "tests/support/sanitized_testing.h"

namespace moestro {
namespace {

// Whether the mapping that holds the address is advised to lie in huge pages.
bool IsAdvised(const void* address) {
  std::ifstream maps("/proc/self/smaps");
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  bool is_its = false;
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0;
    unsigned long end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      is_its = begin <= wanted && wanted < end;
    }
    if (is_its && line.starts_with("VmFlags:")) return line.contains(" hg");
  }
  return false;
}

void* Block(size_t size) {
  void* block = nullptr;
  EXPECT_EQ(posix_memalign(&block, 64, size), 0);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % 64, 0U);
  return block;
}

bool HasHugePages() { return std::filesystem::exists("/sys/kernel/mm/transparent_hugepage"); }

TEST(ContextMemory, LargeBlocksLieInHugePagesWhileItLives) {
  if (!HasHugePages()) GTEST_SKIP() << "this system has no huge pages";
  constexpr size_t kSize = 64 * kMiB;
  void* const before = Block(kSize);
  void* large = nullptr;
  {
    const ContextMemory memory;
    large = Block(kSize);
    std::free(Block(100));
  }
  void* const after = Block(kSize);
  const auto middle = [](void* block) { return static_cast<std::byte*>(block) + kSize / 2; };
  EXPECT_FALSE(IsAdvised(middle(before)));
  EXPECT_TRUE(IsAdvised(middle(large)));
  EXPECT_FALSE(IsAdvised(middle(after)));
  std::memset(large, 7, kSize);
  for (void* block : {before, large, after}) std::free(block);
}

TEST(ContextMemory, BlocksAreCountedWhileItLives) {
  if (kIsSanitized) GTEST_SKIP() << "a sanitizer has an allocator of its own";
  const ContextMemory memory;
  for (const size_t size : {size_t{100}, size_t{16 * kMiB}}) std::free(Block(size));
  EXPECT_EQ(memory.buffer_bytes(), 100 + 16 * kMiB);
}

TEST(ContextMemory, BlocksAreRefusedAsByTheLibrary) {
  void* block = &block;
  EXPECT_EQ(posix_memalign(&block, 24, 100), EINVAL);
  EXPECT_EQ(posix_memalign(&block, 4, 100), EINVAL);
  EXPECT_EQ(block, &block);
  if (kIsSanitized) return;  // a sanitizer's allocator ends the process on such sizes
  EXPECT_EQ(posix_memalign(&block, 64, SIZE_MAX / 2), ENOMEM);
  EXPECT_EQ(block, &block);
}

struct FreeBuffer {
  void operator()(ggml_backend_buffer_t buffer) const { ggml_backend_buffer_free(buffer); }
};
using Buffer = std::unique_ptr<ggml_backend_buffer, FreeBuffer>;

Buffer CpuBuffer(size_t size) {
  return Buffer(ggml_backend_buft_alloc_buffer(ggml_backend_cpu_buffer_type(), size));
}

std::span<std::byte> BytesOf(const Buffer& buffer) {
  return {static_cast<std::byte*>(ggml_backend_buffer_get_base(buffer.get())),
          ggml_backend_buffer_get_size(buffer.get())};
}

bool AreAll(std::span<const std::byte> bytes, int value) {
  return std::ranges::all_of(bytes,
                             [&](std::byte b) { return b == static_cast<std::byte>(value); });
}

TEST(ContextMemory, AFreshBufferIsClearedWithoutATouch) {
  constexpr size_t kSize = 64 * kMiB;
  ContextMemory memory;
  const Buffer buffer = CpuBuffer(kSize);
  const uint64_t before = ResidentMemory();
  ggml_backend_buffer_clear(buffer.get(), 0);
  EXPECT_LT(ResidentMemory(), before + 16 * kMiB);
  EXPECT_EQ(memory.cleared_bytes(), kSize);
  EXPECT_TRUE(AreAll(BytesOf(buffer), 0));
}

// Memory that was in use before, of all sizes around whole pages.
TEST(ContextMemory, ClearedBuffersHoldZeros) {
  for (const size_t size : {size_t{1000}, size_t{100 * kKiB}, size_t{16 * kMiB + 100}}) {
    std::vector<void*> dirty;
    for (int i = 0; i < 4; ++i) std::memset(dirty.emplace_back(Block(size + 4096)), 7, size);
    for (void* block : dirty) std::free(block);
    ContextMemory memory;
    const Buffer buffer = CpuBuffer(size);
    ggml_backend_buffer_clear(buffer.get(), 0);
    EXPECT_TRUE(AreAll(BytesOf(buffer), 0)) << size;
    std::ranges::fill(BytesOf(buffer), std::byte{9});
    ggml_backend_buffer_clear(buffer.get(), 0);
    EXPECT_TRUE(AreAll(BytesOf(buffer), 0)) << size << ", again";
    ggml_backend_buffer_clear(buffer.get(), 5);
    EXPECT_TRUE(AreAll(BytesOf(buffer), 5)) << size << ", with another value";
  }
}

// A block that was freed may lie within a later one.
TEST(ContextMemory, ABlockInThePlaceOfAFreedOneIsClearedAgain) {
  ContextMemory memory;
  std::free(Block(64 * kMiB));
  std::free(Block(72 * kMiB));
  const Buffer buffer = CpuBuffer(96 * kMiB);
  for (int i = 0; i < 3; ++i) {
    ggml_backend_buffer_clear(buffer.get(), 0);
    ASSERT_TRUE(AreAll(BytesOf(buffer), 0)) << i;
    std::ranges::fill(BytesOf(buffer), std::byte{9});
  }
}

TEST(ContextMemory, WithoutOneTheLibraryClears) {
  Buffer buffer;
  {
    ContextMemory memory;
    buffer = CpuBuffer(16 * kMiB);
  }
  std::ranges::fill(BytesOf(buffer), std::byte{9});
  ggml_backend_buffer_clear(buffer.get(), 0);
  EXPECT_TRUE(AreAll(BytesOf(buffer), 0));
}

}  // namespace
}  // namespace moestro
