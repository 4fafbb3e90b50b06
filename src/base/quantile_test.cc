// SPDX-License-Identifier: MIT
#include "base/quantile.h"

#include <gtest/gtest.h>

namespace moestro {
namespace {

TEST(Quantile, NoneAndOne) {
  EXPECT_EQ(Quantile({}, 0.5), 0.0);
  EXPECT_EQ(Quantile({7.0}, 0.0), 7.0);
  EXPECT_EQ(Quantile({7.0}, 1.0), 7.0);
}

TEST(Quantile, SortsAndInterpolates) {
  EXPECT_EQ(Median({3.0, 1.0, 2.0}), 2.0);
  EXPECT_EQ(Median({4.0, 1.0, 2.0, 3.0}), 2.5);
  EXPECT_DOUBLE_EQ(Quantile({1, 2, 3, 4, 5}, 0.95), 4.8);
  EXPECT_EQ(Quantile({5, 1, 3}, 1.0), 5.0);
}

}  // namespace
}  // namespace moestro
