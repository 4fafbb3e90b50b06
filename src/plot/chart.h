// SPDX-License-Identifier: MIT
// Lines and dots over two axes as an SVG document. Plain values in, text out.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "plot/axis.h"

namespace moestro {

struct ChartPoint {
  double x = 0.0;
  double y = 0.0;
  double x_error = 0.0;    // drawn to each side; 0: none
  std::string label = {};  // beside the dot
};

struct ChartSeries {
  std::string name = {};  // its entry in the legend; empty: none
  std::string_view colour;
  std::vector<ChartPoint> points;
  bool is_joined = false;  // a line through the points, in order of x
  bool is_dashed = false;
  double radius = 2.5;  // of the dots; 0: none
};

struct Chart {
  std::string title;  // any text
  ChartAxis x;
  ChartAxis y;
  std::vector<ChartSeries> series;  // later ones are drawn over earlier ones
};

// REQUIRES: both axes have ticks, and coordinates are finite.
std::string DrawChart(const Chart& chart);

// Colours that remain distinct to people with colour blindness; they repeat after ten.
std::string_view SeriesColour(size_t index);
inline constexpr std::string_view kLimitColour = "#000";

}  // namespace moestro
