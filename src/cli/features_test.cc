// SPDX-License-Identifier: MIT
#include "cli/features.h"

#include <gtest/gtest.h>

namespace moestro {
namespace {

TEST(Features, AlonePairsAndTheirRefusals) {
  EXPECT_TRUE(CheckTogether({}));
  EXPECT_TRUE(CheckTogether({.draft = true}));
  EXPECT_TRUE(CheckTogether({.little = true, .low = true, .prefer_resident = true}));
  EXPECT_TRUE(CheckTogether({.beams = true, .low = true}));
  const Status refused = CheckTogether({.little = true, .beams = true});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::kUsage);
  EXPECT_EQ(refused.error().message,
            "--little and --beams do not work together; --little works with --low, "
            "--prefer-resident, --sequences");
  const Status alone = CheckTogether({.draft = true, .low = true});
  ASSERT_FALSE(alone);
  EXPECT_EQ(alone.error().message,
            "--draft and --low do not work together; --draft works with none of these");
}

TEST(Features, AnEnginesOptions) {
  EngineOptions engine;
  engine.little.is_half = true;
  engine.lossy.prefer_resident = 0.1;
  const Features features = FeaturesOf(engine);
  EXPECT_TRUE(features.little && features.prefer_resident);
  EXPECT_FALSE(features.low || features.draft || features.beams || features.sequences);
}

}  // namespace
}  // namespace moestro
