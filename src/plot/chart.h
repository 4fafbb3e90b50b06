// SPDX-License-Identifier: MIT
// Drawings as SVG: lines and dots over two axes, heat maps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moestro {

// Lines and dots over two axes as an SVG document. Plain values in, text out.

// Parts that all drawings share.

// A whole drawing on white. `title` may hold any text and stands at the top, around `middle`.
struct SvgPage {
  double width = 0.0;
  double height = 0.0;
  double middle = 0.0;
};
std::string SvgDocument(const SvgPage& page, std::string_view title, std::string_view body);

// Any text as it may stand in a document.
std::string SvgEscaped(std::string_view text);

// `anchor` is start, middle or end.
std::string SvgText(double x, double y, std::string_view anchor, std::string_view text);

// One axis of a chart: the values that it shows, and the place of a value on it. Plain values.

struct ChartAxis {
  std::string label;
  std::vector<double> ticks;  // rising; the axis ends at the first and at the last
  std::string unit = {};      // stands behind each tick's value
  bool is_logarithmic = false;

  // 0 at the first tick, 1 at the last; values beyond an end lie at the end. 0.5 if all ticks are
  // equal. REQUIRES: ticks are not empty; a logarithmic axis has positive ticks and values.
  double share(double value) const;
};

// Ticks from 0 in round steps (1, 2 or 5 times a power of ten) that hold `most`, about five of
// them. 0 and 1 if `most` is not a positive number.
std::vector<double> RoundTicks(double most);

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

// A grid of cells, each the darker the larger its value, as an SVG document.

struct HeatCell {
  std::optional<double> share;  // 0 is white, 1 dark blue; nullopt: not filled
  std::string tip = {};         // shown under a pointer
  bool is_marked = false;       // with a dot
};

struct HeatMap {
  std::string title;  // any text
  std::string row_label;
  std::string column_label;
  uint32_t rows = 0;
  uint32_t columns = 0;
  std::vector<HeatCell> cells;     // [row][column]
  std::vector<std::string> notes;  // a line each, below
};

// REQUIRES: cells.size() == rows * columns.
std::string DrawHeatMap(const HeatMap& map);

}  // namespace moestro
