// SPDX-License-Identifier: MIT
#include "cli/eval_sweep.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

namespace moestro {
namespace {

EvalPoint Point(const std::string& cache, double kl, double tps) {
  EvalPoint point{
      .settings = {{.knob = "cache", .value = cache}}, .figures = {}, .decode_tps = tps};
  point.figures.tokens = 100;
  point.figures.against.emplace();
  point.figures.against->kl_mean = {.value = kl, .error = kl / 10.0};
  return point;
}

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
  const std::vector<EvalPoint> points = {Point("a", 0.0, 10.0),  Point("b", 0.01, 9.0),
                                         Point("c", 0.01, 20.0), Point("d", 0.02, 20.0),
                                         Point("e", 0.05, 40.0), Point("f", 0.0, 10.0)};
  EXPECT_EQ(ParetoFront(points), (std::vector{true, false, true, false, true, true}));
  const std::string csv = SweepAsCsv(points);
  EXPECT_TRUE(csv.starts_with("cache,tokens,perplexity,perplexity_se,kl_mean,kl_se,")) << csv;
  EXPECT_EQ(std::ranges::count(csv, '\n'), 7);
  EXPECT_NE(csv.find("\nb,100,"), std::string::npos) << csv;
  EXPECT_EQ(SweepAsCsv({}), "");
}

TEST(EvalSweep, TheDrawingHasADotForEachPointAndALineThroughTheFront) {
  const std::vector<EvalPoint> points = {Point("<10%>", 0.0, 10.0), Point("b", 0.03, 5.0),
                                         Point("c", 0.04, 20.0)};
  const std::string svg = SweepDrawing("a & b", points);
  size_t dots = 0;
  for (size_t at = 0; (at = svg.find("<circle", at)) != std::string::npos; ++at) ++dots;
  EXPECT_EQ(dots, 3U);
  // 0.04 with its error needs 0.05 on the axis; 20 tok/s is the top.
  EXPECT_NE(svg.find("<polyline points='70.0,215.0 566.0,40.0'"), std::string::npos) << svg;
  for (const char* text : {"a &amp; b", "cache=&lt;10%&gt;", ">0.05<", ">20<"}) {
    EXPECT_NE(svg.find(text), std::string::npos) << text << "\n" << svg;
  }
}

TEST(EvalSweep, ADrawingOfWhatIsNotKnownHasFiniteNumbers) {
  EvalPoint exact = Point("100%", 0.0, 0.0);
  exact.figures.against->kl_mean.error = std::numeric_limits<double>::quiet_NaN();
  const std::string svg = SweepDrawing("t", {exact});
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

}  // namespace
}  // namespace moestro
