// SPDX-License-Identifier: MIT
#include "plot/chart.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace moestro {
namespace {

size_t Count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++n;
  return n;
}

TEST(ChartAxis, SharesAreLinearOrByFactors) {
  const ChartAxis linear{.label = "x", .ticks = {0.0, 5.0, 10.0}};
  EXPECT_DOUBLE_EQ(linear.share(2.5), 0.25);
  EXPECT_DOUBLE_EQ(linear.share(11.0), 1.0);
  EXPECT_DOUBLE_EQ(linear.share(-1.0), 0.0);
  const ChartAxis factors{.label = "x", .ticks = {1.0, 100.0}, .is_logarithmic = true};
  EXPECT_DOUBLE_EQ(factors.share(10.0), 0.5);
  EXPECT_DOUBLE_EQ((ChartAxis{.label = "x", .ticks = {3.0}}).share(3.0), 0.5);
}

TEST(ChartAxis, TicksAreRoundAndHoldTheLargest) {
  EXPECT_EQ(RoundTicks(10.0), (std::vector{0.0, 2.0, 4.0, 6.0, 8.0, 10.0}));
  EXPECT_EQ(RoundTicks(10.1).back(), 15.0);
  EXPECT_EQ(RoundTicks(0.0), (std::vector{0.0, 1.0}));
  EXPECT_EQ(RoundTicks(-1.0 / 0.0), (std::vector{0.0, 1.0}));
}

TEST(Chart, DrawsSeriesWithErrorsLabelsAndALegend) {
  Chart chart{.title = "<a> & b",
              .x = {.label = "slots", .ticks = {0.0, 10.0}},
              .y = {.label = "hits", .ticks = {0.0, 100.0}, .unit = " %"},
              .series = {}};
  chart.series.push_back({.name = "lru",
                          .colour = SeriesColour(0),
                          .points = {{.x = 10.0, .y = 100.0}, {.x = 5.0, .y = 50.0}},
                          .is_joined = true});
  chart.series.push_back({.colour = SeriesColour(1),
                          .points = {{.x = 1.0, .y = 0.0, .x_error = 3.0, .label = "k=<1>"}},
                          .is_dashed = true});
  const std::string svg = DrawChart(chart);
  EXPECT_NE(svg.find("&lt;a&gt; &amp; b"), std::string::npos);
  EXPECT_NE(svg.find(">k=&lt;1&gt;<"), std::string::npos);
  EXPECT_NE(svg.find(">100 %<"), std::string::npos);
  // In order of x, the right end at the top.
  EXPECT_NE(svg.find("<polyline points='330.0,215.0 590.0,40.0'"), std::string::npos) << svg;
  EXPECT_EQ(Count(svg, "<circle"), 3U);
  EXPECT_EQ(Count(svg, ">lru<"), 1U);
  // The error bar ends where the axis begins.
  EXPECT_NE(svg.find("<line x1='70.0' y1='390.0' x2='278.0' y2='390.0'"), std::string::npos) << svg;
  EXPECT_EQ(Count(svg, "stroke-dasharray"), 1U);
}

TEST(HeatMap, FillsCellsByTheirShareAndSaysWhatTheyAre) {
  const std::string svg = DrawHeatMap({.title = "t",
                                       .row_label = "layer",
                                       .column_label = "experts",
                                       .rows = 1,
                                       .columns = 3,
                                       .cells = {{.share = 0.0, .tip = "<0>"},
                                                 {.share = 2.0, .tip = "most", .is_marked = true},
                                                 {.share = {}, .tip = "none"}},
                                       .notes = {"first", "second"}});
  EXPECT_NE(svg.find("fill='#f7fbff'"), std::string::npos);
  EXPECT_NE(svg.find("fill='#08306b'"), std::string::npos);
  EXPECT_NE(svg.find("fill='none'"), std::string::npos);
  EXPECT_NE(svg.find("<title>&lt;0&gt;</title>"), std::string::npos);
  EXPECT_EQ(Count(svg, "<circle"), 1U);
  EXPECT_LT(svg.find(">first<"), svg.find(">second<"));
}

}  // namespace
}  // namespace moestro
