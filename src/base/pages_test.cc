// SPDX-License-Identifier: MIT
#include "base/pages.h"

#include <gtest/gtest.h>

#include <bit>
#include <span>
#include <vector>

namespace moestro {
namespace {

TEST(Pages, OfThisMachine) {
  EXPECT_TRUE(std::has_single_bit(PageBytes()));
  EXPECT_GE(PageBytes(), 4 * kKiB);
  EXPECT_LE(PageBytes(), kMostPageBytes);
}

TEST(Pages, WholeOnesOfEachSize) {
  std::vector<std::byte> bytes(5 * kMostPageBytes);
  for (const uint64_t page : {4 * kKiB, 16 * kKiB, 64 * kKiB}) {
    const auto address = reinterpret_cast<uintptr_t>(bytes.data());
    const std::span<std::byte> pages =
        std::span(bytes).subspan(AlignUp(address, page) - address, 3 * page);
    EXPECT_EQ(WholePages(pages, page).data(), pages.data());
    EXPECT_EQ(WholePages(pages, page).size(), 3 * page);
    const std::span<std::byte> cut = WholePages(pages.subspan(1, 3 * page - 2), page);
    EXPECT_EQ(cut.data(), pages.data() + page);
    EXPECT_EQ(cut.size(), page);
    EXPECT_TRUE(WholePages(pages.subspan(1, page), page).empty());
    EXPECT_TRUE(WholePages(pages.subspan(1, 2 * page - 2), page).empty());
    EXPECT_TRUE(WholePages(pages.subspan(1, 5), page).empty());
    EXPECT_TRUE(WholePages({}, page).empty());
  }
}

}  // namespace
}  // namespace moestro
