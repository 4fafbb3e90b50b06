// SPDX-License-Identifier: MIT
#include "lab/sweep_plot.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

#include "base/format.h"
#include "plot/chart.h"

namespace moestro {
namespace {

// An axis from 0 in tenths up to the first tenth above the highest rate.
ChartAxis RateAxis(const std::vector<SweepLine>& lines) {
  double highest = 0.0;
  for (const SweepLine& line : lines) highest = std::max(highest, line.result.hit_rate());
  const auto tenths = std::clamp(static_cast<int>(std::ceil(highest * 10.0)), 1, 10);
  ChartAxis axis{.label = "hits", .ticks = {}, .unit = " %"};
  for (int i = 0; i <= tenths; ++i) axis.ticks.push_back(10.0 * i);
  return axis;
}

ChartAxis SlotsAxis(const std::vector<SweepLine>& lines) {
  std::set<double> percents;
  for (const SweepLine& line : lines) percents.insert(line.percent);
  return {.label = "slots, of all experts",
          .ticks = {percents.begin(), percents.end()},
          .unit = " %",
          .is_logarithmic = true};
}

// Name of a line's series. With lanes a policy has a series for each way to place, number of rows
// and size of the devices.
std::string NameOfSeries(const SweepLine& line) {
  if (!line.has_lanes) return line.policy;
  return Format("{}, {}, {} rows, {} on devices", line.policy, NameOf(line.mode), line.rows,
                line.device_slots);
}

}  // namespace

std::string SweepPlot(const std::string& title, const std::vector<SweepLine>& lines) {
  Chart chart{.title = title, .x = SlotsAxis(lines), .y = RateAxis(lines), .series = {}};
  for (const SweepLine& line : lines) {
    const std::string name = NameOfSeries(line);
    auto series = std::ranges::find(chart.series, name, &ChartSeries::name);
    if (series == chart.series.end()) {
      const bool is_limit = line.policy == "belady";
      chart.series.push_back({.name = name,
                              .colour = is_limit ? kLimitColour : SeriesColour(chart.series.size()),
                              .points = {},
                              .is_joined = true,
                              .is_dashed = is_limit});
      series = std::prev(chart.series.end());
    }
    series->points.push_back({.x = line.percent, .y = 100.0 * line.result.hit_rate()});
  }
  return DrawChart(chart);
}

}  // namespace moestro
