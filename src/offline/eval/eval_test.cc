// SPDX-License-Identifier: MIT
#include "offline/eval/eval.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "offline/eval/eval_sweep_testing.h"

namespace moestro {
namespace {

TEST(EvalSweep, EveryCombinationOnce) {
  const auto all = ParseSweep("cache=25%,1G;policy=lru,hobbit:w_lru=0.5;prefetch=0");
  ASSERT_TRUE(all.has_value());
  ASSERT_EQ(all->size(), 4U);
  EXPECT_EQ(ToText(all->front()), "cache=25% policy=lru prefetch=0");
  EXPECT_EQ(ToText(all->back()), "cache=1G policy=hobbit:w_lru=0.5 prefetch=0");
  EngineOptions before;
  before.prefetch = 2;
  const EngineOptions options = WithSettings(before, all->back());
  EXPECT_EQ(options.cache->bytes, 1ULL << 30);
  EXPECT_EQ(options.policy->name, "hobbit");
  EXPECT_EQ(options.prefetch, 0U);
}

TEST(EvalSweep, MistakesAreUsageErrors) {
  std::string many = "cache=1%";
  for (int i = 0; i < 1000; ++i) many += ",1%";
  for (const std::string& text :
       {std::string(), std::string("cache"), std::string("cache="), std::string("cache=25%,"),
        std::string("speed=1"), std::string("prefetch=few"), std::string("cache=25%;cache=50%"),
        std::string("cache=25%;"), many}) {
    const auto parsed = ParseSweep(text);
    ASSERT_FALSE(parsed.has_value()) << text;
    EXPECT_EQ(parsed.error().code, Errc::kUsage);
  }
}

TEST(EvalSweep, TheFrontIsWhatNothingElseBeats) {
  const std::vector<EvalPoint> points = {SweepPoint("a", 0.0, 10.0),  SweepPoint("b", 0.01, 9.0),
                                         SweepPoint("c", 0.01, 20.0), SweepPoint("d", 0.02, 20.0),
                                         SweepPoint("e", 0.05, 40.0), SweepPoint("f", 0.0, 10.0)};
  EXPECT_EQ(ParetoFront(points), (std::vector{true, false, true, false, true, true}));
}

}  // namespace
}  // namespace moestro
