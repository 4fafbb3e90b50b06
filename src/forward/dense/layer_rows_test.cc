// SPDX-License-Identifier: MIT
#include "forward/dense/layer_rows.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace moestro {
namespace {

using Limits = std::numeric_limits<float>;

TEST(Finite, NumbersOfAnySizeAreFinite) {
  const std::vector<float> values = {
      0.0F, -0.0F, 1.0F, Limits::max(), Limits::lowest(), Limits::denorm_min(), -1e-40F, 3e38F};
  EXPECT_EQ(FirstRowNotFinite(values, 4), std::nullopt);
  EXPECT_EQ(FirstRowNotFinite({}, 4), std::nullopt);
}

TEST(Finite, OneBadValueIsFoundWhereverItIs) {
  constexpr size_t kWidth = 67;  // more than are taken together, and some over
  constexpr size_t kRows = 3;
  const float quiet = Limits::quiet_NaN();
  for (const float bad :
       {quiet, -quiet, Limits::signaling_NaN(), Limits::infinity(), -Limits::infinity()}) {
    for (size_t at = 0; at < kRows * kWidth; ++at) {
      std::vector<float> values(kRows * kWidth, -1.5F);
      values[at] = bad;
      ASSERT_EQ(FirstRowNotFinite(values, kWidth), at / kWidth) << at;
    }
  }
}

}  // namespace
}  // namespace moestro
