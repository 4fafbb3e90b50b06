// SPDX-License-Identifier: MIT
#include "hosted/huge_blocks.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/bytes.h"

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

TEST(HugeBlocks, AdviseLargeBlocksWhileTheyLive) {
  if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage")) {
    GTEST_SKIP() << "this system has no huge pages";
  }
  constexpr size_t kSize = 64 * kMiB;
  void* const before = Block(kSize);
  void* large = nullptr;
  {
    const HugeBlocks huge;
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

TEST(HugeBlocks, BlocksAreRefusedAsByTheLibrary) {
  void* block = &block;
  EXPECT_EQ(posix_memalign(&block, 24, 100), EINVAL);
  EXPECT_EQ(posix_memalign(&block, 4, 100), EINVAL);
  EXPECT_EQ(posix_memalign(&block, 64, SIZE_MAX / 2), ENOMEM);
  EXPECT_EQ(block, &block);
}

}  // namespace
}  // namespace moestro
