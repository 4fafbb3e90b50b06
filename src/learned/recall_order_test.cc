// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "learned/kept_facts.h"

namespace moestro {
namespace {

TEST(PackUses, KeepsTheOrderOfCounts) {
  EXPECT_EQ(PackUses(0), 0);
  EXPECT_EQ(UnpackUses(0), 0U);
  EXPECT_EQ(PackUses(UINT32_MAX), 255);
  for (uint32_t n = 1; n < 5000; ++n) {
    EXPECT_LE(PackUses(n), PackUses(n + 1));
    EXPECT_NEAR(UnpackUses(PackUses(n)), n, 1.0 + n * 0.025);
  }
}

// Two layers of four experts, which lie in the file from the last layer's last expert to the first;
// the second layer's have a pool of their own.
class RecallOrderTest : public ::testing::Test {
 protected:
  RecallOrderTest() {
    for (uint16_t layer = 0; layer < 2; ++layer) {
      const uint64_t bytes = 1000 * (layer + 1U);
      for (uint16_t e = 0; e < 4; ++e) {
        const uint64_t offset = 100'000 - (layer * 4U + e) * 10'000;
        std::array<Extent, kMatrices> slices;
        for (size_t m = 0; m < kMatrices; ++m) {
          slices[m] = {.file = 0, .offset = offset + m * bytes, .length = bytes};
        }
        catalog_.Add(ExpertLayerId{layer}, ExpertId{e}, {}, slices);
      }
    }
  }
  std::vector<std::pair<int, int>> Order(std::vector<uint64_t> slots, std::vector<uint8_t> packed) {
    std::vector<std::pair<int, int>> order;
    for (const SlotTable::Used& one : RecallOrder(catalog_, 4, slots, packed)) {
      order.emplace_back(one.key.layer.value, one.key.expert.value);
    }
    return order;
  }
  ExpertCatalog catalog_;
};

using Keys = std::vector<std::pair<int, int>>;

TEST_F(RecallOrderTest, TheMostUsedOfEachPoolInOrderOfTheFile) {
  ASSERT_EQ(catalog_.pools.size(), 2U);
  const std::vector<uint8_t> packed = {40, 0, 60, 50, 9, 8, 7, 0};
  EXPECT_EQ(Order({2, 2}, packed), (Keys{{1, 1}, {1, 0}, {0, 3}, {0, 2}}));
  EXPECT_EQ(Order({9, 1}, packed), (Keys{{1, 0}, {0, 3}, {0, 2}, {0, 0}}));
  EXPECT_EQ(Order({0, 0}, packed), Keys());
  EXPECT_EQ(Order({4, 4}, std::vector<uint8_t>(8, 0)), Keys());
}

TEST_F(RecallOrderTest, SmallCountsHaveAnOrder) {
  EXPECT_EQ(Order({1, 0}, {PackUses(1), PackUses(3), PackUses(2), 0, 0, 0, 0, 0}), (Keys{{0, 1}}));
}

TEST_F(RecallOrderTest, OldUsesCountHalf) {
  const std::vector<uint8_t> packed = {PackUses(64), PackUses(1), 0, 0, 0, 0, 0, 0};
  const std::vector<uint64_t> slots = {4, 4};
  const auto order = RecallOrder(catalog_, 4, slots, packed);
  ASSERT_EQ(order.size(), 2U);
  EXPECT_EQ(order[0].uses, 1U);
  EXPECT_EQ(order[1].uses, 32U);
}

}  // namespace
}  // namespace moestro
