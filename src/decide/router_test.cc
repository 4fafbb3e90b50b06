// SPDX-License-Identifier: MIT
#include "decide/router.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace moestro {
namespace {

constexpr RouterSpec kPlain{.n_expert = 4, .n_used = 2};

TEST(Route, TakesTheLargestInOrder) {
  const std::vector<float> logits = {0.0F, 2.0F, 1.0F, -1.0F, 3.0F, 0.0F, 0.0F, 4.0F};
  const Routing r = Route(kPlain, logits);
  ASSERT_EQ(r.n_tokens, 2U);
  EXPECT_EQ(r.experts_of(0)[0].value, 1);
  EXPECT_EQ(r.experts_of(0)[1].value, 2);
  EXPECT_EQ(r.experts_of(1)[0].value, 3);
  EXPECT_EQ(r.experts_of(1)[1].value, 0);
  const double sum = 1.0 + std::exp(2.0) + std::exp(1.0) + std::exp(-1.0);
  EXPECT_NEAR(r.weights_of(0)[0], std::exp(2.0) / sum, 1e-6);
  EXPECT_NEAR(r.weights_of(0)[1], std::exp(1.0) / sum, 1e-6);
}

TEST(Route, RenormalisesThenScales) {
  RouterSpec spec = kPlain;
  spec.renormalise = true;
  spec.weight_scale = 2.5F;
  const std::vector<float> logits = {0.0F, 2.0F, 1.0F, -1.0F};
  const Routing r = Route(spec, logits);
  EXPECT_NEAR(r.weights[0] + r.weights[1], 2.5F, 1e-6);
  EXPECT_NEAR(r.weights[0] / r.weights[1], std::exp(1.0), 1e-5);
}

TEST(Route, TiesGoToTheLowerId) {
  const std::vector<float> logits = {1.0F, 1.0F, 1.0F, 1.0F};
  const Routing r = Route(kPlain, logits);
  EXPECT_EQ(r.experts[0].value, 0);
  EXPECT_EQ(r.experts[1].value, 1);
}

TEST(Route, NeverRepeatsAnExpertEvenOnBrokenLogits) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  for (const std::vector<float>& logits :
       {std::vector<float>{nan, nan, nan, nan}, std::vector<float>{inf, inf, -inf, nan},
        std::vector<float>{-inf, -inf, -inf, -inf}}) {
    const Routing r = Route(kPlain, logits);
    EXPECT_NE(r.experts[0].value, r.experts[1].value);
    EXPECT_LT(r.experts[0].value, 4);
    EXPECT_FALSE(std::isnan(r.weights[0]));
  }
}

}  // namespace
}  // namespace moestro
