// SPDX-License-Identifier: MIT
#include "decide/slots/first_experts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>
#include <vector>

namespace moestro {
namespace {

constexpr MoeShape kTwoOfFour{.n_layer = 2, .n_expert = 4, .n_used = 2};

ExpertKey At(uint16_t layer, uint16_t expert) { return {.layer = {layer}, .expert = {expert}}; }

TEST(Popularity, TheMostAskedForComeFirstAndOfEqualsTheEarlier) {
  const std::array<uint64_t, 8> counts = {1, 7, 0, 1, 3, 1, 0, 9};
  EXPECT_EQ(MostFirst(kTwoOfFour, counts), (std::vector{At(1, 3), At(0, 1), At(1, 0), At(0, 0),
                                                        At(0, 3), At(1, 1), At(0, 2), At(1, 2)}));
  EXPECT_EQ(AllExperts(kTwoOfFour).front(), At(0, 0));
  EXPECT_EQ(AllExperts(kTwoOfFour).back(), At(1, 3));
}

TEST(Popularity, OfTheFirstLayerNothingIsKnown) {
  const auto paths = PathTable::Create(kTwoOfFour, {{}, {.popularity = {1, 65535, 40000, 25534}}});
  ASSERT_TRUE(paths) << paths.error().message;
  const std::vector<ExpertKey> learned = ByPopularity(*paths);
  EXPECT_EQ(learned[0], At(1, 1));
  EXPECT_EQ(learned[1], At(1, 2));
  EXPECT_EQ(learned[2], At(0, 0));  // half, as far as anybody knows
  EXPECT_EQ(learned.back(), At(1, 0));
}

size_t OfLayer(const std::vector<ExpertKey>& share, uint16_t layer) {
  return static_cast<size_t>(
      std::ranges::count_if(share, [&](ExpertKey key) { return key.layer.value == layer; }));
}

TEST(SettledShares, EveryLayerGivesEachDeviceTheSameShare) {
  const std::array<uint32_t, 3> experts{8, 8, 8};
  const std::array<uint64_t, 2> room{6, 3};
  const auto shares = SharesOf(experts, {}, 0, room);
  ASSERT_EQ(shares.size(), 2U);
  EXPECT_EQ(shares[0].size(), 6U);
  EXPECT_EQ(shares[1].size(), 3U);
  for (uint16_t layer = 0; layer < 3; ++layer) {
    EXPECT_EQ(OfLayer(shares[0], layer), 2U) << layer;
    EXPECT_EQ(OfLayer(shares[1], layer), 1U) << layer;
  }
}

TEST(SettledShares, MemoryKeepsTheHottestWhileOthersFindAPlace) {
  const std::array<uint32_t, 2> experts{3, 3};
  const std::array<ExpertKey, 4> first{At(1, 2), At(0, 1), At(1, 0), At(0, 0)};
  const std::array<uint64_t, 1> three{3};
  const auto some = SharesOf(experts, first, 2, three);
  EXPECT_EQ(some[0], (std::vector{At(1, 0), At(1, 1), At(0, 0)})) << "layer 1 is hotter";
  const std::array<uint64_t, 1> five{5};
  const auto most = SharesOf(experts, first, 2, five);
  EXPECT_TRUE(std::ranges::contains(most[0], At(0, 1))) << "the coldest of the kept";
  EXPECT_FALSE(std::ranges::contains(most[0], At(1, 2)));
}

TEST(SettledShares, NoExpertIsTwice) {
  const std::array<uint32_t, 3> experts{5, 2, 7};
  const std::array<uint64_t, 3> room{100, 100, 100};
  std::set<ExpertKey> seen;
  size_t all = 0;
  for (const auto& share : SharesOf(experts, {}, 4, room)) {
    all += share.size();
    seen.insert(share.begin(), share.end());
  }
  EXPECT_EQ(all, 14U);
  EXPECT_EQ(seen.size(), 14U);
}

TEST(SettledShares, NoRoomNoShare) {
  const std::array<uint32_t, 1> experts{4};
  const std::array<uint64_t, 2> none{0, 0};
  for (const auto& share : SharesOf(experts, {}, 0, none)) EXPECT_TRUE(share.empty());
  EXPECT_TRUE(SharesOf(experts, {}, 0, {}).empty());
}

}  // namespace
}  // namespace moestro
