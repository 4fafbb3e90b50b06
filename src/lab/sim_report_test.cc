// SPDX-License-Identifier: MIT
#include "lab/sim_report.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace moestro {
namespace {

SweepLine Line(const std::string& policy, double percent, uint64_t hits) {
  SweepLine line{
      .policy = policy, .slots = static_cast<uint64_t>(percent), .percent = percent, .result = {}};
  line.result.requests = 100;
  line.result.hits = hits;
  line.result.misses = 100 - hits;
  return line;
}

std::vector<std::pair<double, double>> PointsOf(const std::string& polyline) {
  std::vector<std::pair<double, double>> points;
  const size_t begin = polyline.find('\'') + 1;
  const char* text = polyline.c_str() + begin;
  double x = 0.0;
  double y = 0.0;
  int length = 0;
  while (std::sscanf(text, " %lf,%lf%n", &x, &y, &length) == 2) {
    points.emplace_back(x, y);
    text += length;
  }
  return points;
}

std::vector<std::string> Polylines(const std::string& svg) {
  std::vector<std::string> found;
  for (size_t at = 0; (at = svg.find("<polyline", at)) != std::string::npos; ++at) {
    found.push_back(svg.substr(at, svg.find("/>", at) - at));
  }
  return found;
}

TEST(SweepPlot, ALineForEachPolicyThatRisesWithItsRates) {
  const std::string svg = SweepPlot(
      "t", {Line("lru", 12.5, 10), Line("lru", 50.0, 60), Line("lru", 25.0, 30),
            Line("belady", 12.5, 40), Line("belady", 25.0, 40), Line("belady", 50.0, 80)});
  const std::vector<std::string> lines = Polylines(svg);
  ASSERT_EQ(lines.size(), 2U);
  const auto lru = PointsOf(lines[0]);
  ASSERT_EQ(lru.size(), 3U);
  for (size_t i = 1; i < lru.size(); ++i) {
    EXPECT_GT(lru[i].first, lru[i - 1].first);
    EXPECT_LT(lru[i].second, lru[i - 1].second);  // y grows downwards
  }
  // Logarithmic: twice the slots are the same way each time.
  EXPECT_NEAR(lru[1].first - lru[0].first, lru[2].first - lru[1].first, 0.2);
  const auto belady = PointsOf(lines[1]);
  EXPECT_EQ(belady[0].second, belady[1].second);
  EXPECT_LT(belady[2].second, lru[2].second);
  EXPECT_EQ(lines[0].find("dasharray"), std::string::npos);
  EXPECT_NE(lines[1].find("dasharray"), std::string::npos);
  for (const char* label : {">lru<", ">belady<", ">12.5 %<", ">50 %<", ">80 %<"}) {
    EXPECT_NE(svg.find(label), std::string::npos) << label;
  }
}

TEST(SweepPlot, OneSizeAndAnyTitleAreFine) {
  const std::string svg = SweepPlot("<a> & b", {Line("lru", 25.0, 0)});
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
  EXPECT_NE(svg.find("&lt;a&gt; &amp; b"), std::string::npos);
  EXPECT_EQ(PointsOf(Polylines(svg).at(0)).size(), 1U);
}

}  // namespace
}  // namespace moestro
