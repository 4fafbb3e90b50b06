// SPDX-License-Identifier: MIT
#include "lab/eval_report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "offline/eval/eval_sweep_testing.h"

namespace moestro {
namespace {

TEST(EvalSweepReport, TheTableSaysWhatIsOnTheFront) {
  const std::string csv = SweepAsCsv({SweepPoint("a", 0.0, 10.0), SweepPoint("b", 0.01, 9.0)});
  EXPECT_TRUE(csv.starts_with("cache,tokens,perplexity,perplexity_se,kl_mean,kl_se,")) << csv;
  EXPECT_EQ(std::ranges::count(csv, '\n'), 3);
  EXPECT_NE(csv.find("\na,100,"), std::string::npos) << csv;
  EXPECT_NE(csv.find(",1\nb,100,"), std::string::npos) << csv;
  EXPECT_TRUE(csv.ends_with(",0\n")) << csv;
  EXPECT_EQ(SweepAsCsv({}), "");
}

TEST(EvalSweepReport, TheDrawingHasADotForEachPointAndALineThroughTheFront) {
  const std::vector<EvalPoint> points = {SweepPoint("<10%>", 0.0, 10.0), SweepPoint("b", 0.03, 5.0),
                                         SweepPoint("c", 0.04, 20.0)};
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

TEST(EvalSweepReport, ADrawingOfWhatIsNotKnownHasFiniteNumbers) {
  EvalPoint exact = SweepPoint("100%", 0.0, 0.0);
  exact.figures.against->kl_mean.error = std::numeric_limits<double>::quiet_NaN();
  const std::string svg = SweepDrawing("t", {exact});
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

}  // namespace
}  // namespace moestro
