// SPDX-License-Identifier: MIT
#include "forward/dense/relative_scores.h"

#include <gtest/gtest.h>

#include <numbers>

namespace moestro {
namespace {

constexpr RelativeBias kTwoSided{.n_buckets = 32, .max_distance = 128, .is_two_sided = true};
constexpr RelativeBias kOneSided{.n_buckets = 32, .max_distance = 128};

// Values of transformers' T5Attention._relative_position_bucket().
TEST(RelativeScores, BucketsAreThoseOfT5) {
  const std::pair<int64_t, uint32_t> two_sided[] = {
      {0, 0},   {-1, 1},   {1, 17},  {-7, 7},   {7, 23},    {-8, 8},     {8, 24},
      {12, 25}, {-16, 10}, {40, 28}, {-64, 14}, {-127, 15}, {-1000, 15}, {500, 31}};
  for (const auto& [distance, bucket] : two_sided) {
    EXPECT_EQ(BucketOf(kTwoSided, distance), bucket) << distance;
  }
  const std::pair<int64_t, uint32_t> one_sided[] = {{5, 0},     {0, 0},     {-1, 1},    {-15, 15},
                                                    {-16, 16},  {-32, 21},  {-64, 26},  {-100, 30},
                                                    {-127, 31}, {-128, 31}, {-9999, 31}};
  for (const auto& [distance, bucket] : one_sided) {
    EXPECT_EQ(BucketOf(kOneSided, distance), bucket) << distance;
  }
}

TEST(RelativeScores, EachHeadHasItsOwn) {
  std::vector<float> weights(size_t{32} * 3);  // [range][head]
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(i);
  const RelativeScores scores(kTwoSided, weights.data(), 3, 100);
  for (uint32_t head = 0; head < 3; ++head) {
    for (const int64_t distance : {-164, -100, -1, 0, 1, 37, 100, 164}) {
      const float* at = scores.From(head, distance);
      for (int64_t key : {0, 1, 63}) {
        const float expected = weights[BucketOf(kTwoSided, distance + key) * 3 + head];
        EXPECT_EQ(at[key], expected * std::numbers::log2e_v<float>) << head << ' ' << distance;
      }
    }
  }
}

}  // namespace
}  // namespace moestro
