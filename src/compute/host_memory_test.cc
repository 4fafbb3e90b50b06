// SPDX-License-Identifier: MIT
#include "compute/host_memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "base/pages.h"

namespace moestro {
namespace {

// Reads of a disk with the largest blocks land in it.
TEST(HostMemory, BeginsAtTheLargestPage) {
  std::vector<HostMemory> all;
  for (const uint64_t bytes : {1 * kKiB, 4 * kKiB, 68 * kKiB, 100 * kKiB, 9 * kMiB}) {
    auto memory = HostMemory::Allocate(bytes);
    ASSERT_TRUE(memory.has_value());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->data()) % kMostPageBytes, 0U);
    EXPECT_EQ(memory->size(), AlignUp(bytes, PageBytes()));
    memory->Populate(0, memory->size());
    for (const std::byte value : memory->bytes()) ASSERT_EQ(value, std::byte{0});
    memory->bytes().back() = std::byte{1};
    all.push_back(*std::move(memory));
  }
}

}  // namespace
}  // namespace moestro
