// SPDX-License-Identifier: MIT
#include "offline/eval/one_step_kl.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

namespace moestro {
namespace {

TEST(OneStepKl, IsTheMeanOfTheChecksWithItsError) {
  OneStepKl kl;
  const std::array even = {1.0F, 1.0F};
  const std::array odd = {std::log(3.0F), 0.0F};  // 3/4, 1/4
  kl.Add(even, even);
  EXPECT_EQ(kl.mean(), 0.0);
  EXPECT_FALSE(kl.error());
  kl.Add(even, odd);
  const double one = 0.5 * std::log(0.5 / 0.75) + 0.5 * std::log(0.5 / 0.25);
  EXPECT_NEAR(kl.mean(), one / 2.0, 1e-6);
  // Of the two values 0 and `one`: their deviation is one/sqrt(2), the mean's one/2.
  EXPECT_NEAR(kl.error().value(), one / 2.0, 1e-6);
  EXPECT_EQ(kl.tokens(), 2U);
}

}  // namespace
}  // namespace moestro
