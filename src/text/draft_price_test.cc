// SPDX-License-Identifier: MIT
#include "text/draft_price.h"

#include <gtest/gtest.h>

namespace moestro {
namespace {

TEST(PriceDrafts, InMemoryOnlyTheNewExpertsAreRead) {
  // Half of what a step reads is experts; a draft's token reads a tenth of a step's bytes.
  const DraftPrices prices =
      PriceDrafts({.seconds = 0.1, .touched_bytes = 2000, .expert_bytes = 1000}, 200, 48);
  EXPECT_NEAR(prices.row, 0.3, 1e-9);
  EXPECT_NEAR(prices.draft, 0.1, 1e-9);
}

TEST(PriceDrafts, WaitingForTheDiskMakesRowsDear) {
  const StepCosts here{.seconds = 1.0, .touched_bytes = 2000, .expert_bytes = 1000};
  double before = PriceDrafts(here, 200, 48).both();
  for (const double waits : {0.2, 0.5, 0.9, 1.0}) {
    StepCosts costs = here;
    costs.wait_seconds = waits;
    const double now = PriceDrafts(costs, 200, 48).both();
    EXPECT_GT(now, before) << waits;
    before = now;
  }
  EXPECT_NEAR(before, 0.8 + 1.0 / 48, 1e-9);
}

TEST(PriceDrafts, AClockThatStandsStillSaysNothing) {
  EXPECT_EQ(PriceDrafts({}, 100, 48).both(), 0.0);
  EXPECT_EQ(PriceDrafts({.seconds = 1.0}, 100, 0).both(), 0.0);
}

TEST(StepCostMean, FollowsTheLatestSteps) {
  StepCostMean mean;
  mean.Add({.seconds = 5.0, .wait_seconds = 4.0});
  EXPECT_EQ(mean.mean().seconds, 5.0);
  for (int i = 0; i < 60; ++i) mean.Add({.seconds = 1.0});
  EXPECT_NEAR(mean.mean().seconds, 1.0, 0.01);
  EXPECT_NEAR(mean.mean().wait_seconds, 0.0, 0.01);
  EXPECT_EQ(mean.steps(), 61U);
}

}  // namespace
}  // namespace moestro
