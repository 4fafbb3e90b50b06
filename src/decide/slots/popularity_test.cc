// SPDX-License-Identifier: MIT
#include "decide/slots/popularity.h"

#include <gtest/gtest.h>

#include <array>
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

}  // namespace
}  // namespace moestro
