// SPDX-License-Identifier: MIT
#include "lab/eval_sweep_report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string_view>

#include "base/format.h"
#include "plot/chart.h"

namespace moestro {
namespace {

constexpr std::string_view kFrontColour = "#d55e00";
constexpr std::string_view kOtherColour = "#7f7f7f";

struct Column {
  std::string_view name;
  double (*value)(const EvalPoint& point);
};

// Columns by their names in --json.
constexpr std::array kColumns = {
    Column{"tokens", [](const EvalPoint& p) { return static_cast<double>(p.figures.tokens); }},
    Column{"perplexity", [](const EvalPoint& p) { return p.figures.perplexity.value; }},
    Column{"perplexity_se", [](const EvalPoint& p) { return p.figures.perplexity.error; }},
    Column{"kl_mean", [](const EvalPoint& p) { return p.figures.against->kl_mean.value; }},
    Column{"kl_se", [](const EvalPoint& p) { return p.figures.against->kl_mean.error; }},
    Column{"kl_p99", [](const EvalPoint& p) { return p.figures.against->kl_p99.value; }},
    Column{"kl_p999", [](const EvalPoint& p) { return p.figures.against->kl_p999.value; }},
    Column{"kl_max", [](const EvalPoint& p) { return p.figures.against->kl_max; }},
    Column{"top1_agreement",
           [](const EvalPoint& p) { return p.figures.against->top1_agreement.value; }},
    Column{"delta_p_rms", [](const EvalPoint& p) { return p.figures.against->delta_p_rms.value; }},
    Column{"bytes_per_token", [](const EvalPoint& p) { return p.bytes_per_token; }},
    Column{"hit_rate", [](const EvalPoint& p) { return p.hit_rate; }},
    Column{"decode_tps", [](const EvalPoint& p) { return p.decode_tps; }},
    Column{"percent_of_bound", [](const EvalPoint& p) { return p.percent_of_bound; }},
};

ChartPoint ToChartPoint(const EvalPoint& point) {
  const Estimate& kl = point.figures.against->kl_mean;
  return {.x = kl.value,
          .y = point.decode_tps,
          .x_error = std::isfinite(kl.error) ? kl.error : 0.0,
          .label = ToText(point.settings)};
}

// The axes' ends.
ChartPoint FarthestOf(const std::vector<EvalPoint>& points) {
  ChartPoint farthest;
  for (const EvalPoint& point : points) {
    const ChartPoint p = ToChartPoint(point);
    farthest.x = std::max(farthest.x, p.x + p.x_error);
    farthest.y = std::max(farthest.y, p.y);
  }
  return farthest;
}

}  // namespace

std::string SweepAsCsv(const std::vector<EvalPoint>& points) {
  std::string csv;
  if (points.empty()) return csv;
  for (const KnobSetting& s : points.front().settings) csv += s.knob + ",";
  for (const Column& column : kColumns) csv += Format("{},", column.name);
  csv += "pareto\n";
  const std::vector<bool> front = ParetoFront(points);
  for (size_t i = 0; i < points.size(); ++i) {
    for (const KnobSetting& s : points[i].settings) csv += s.value + ",";
    for (const Column& column : kColumns) csv += Format("{},", column.value(points[i]));
    csv += front[i] ? "1\n" : "0\n";
  }
  return csv;
}

std::string SweepDrawing(const std::string& title, const std::vector<EvalPoint>& points) {
  ChartSeries line{.colour = kFrontColour, .points = {}, .is_joined = true, .radius = 0.0};
  ChartSeries best{.colour = kFrontColour, .points = {}, .radius = 4.0};
  ChartSeries others{.colour = kOtherColour, .points = {}, .radius = 4.0};
  const std::vector<bool> front = ParetoFront(points);
  for (size_t i = 0; i < points.size(); ++i) {
    (front[i] ? best : others).points.push_back(ToChartPoint(points[i]));
    if (front[i]) line.points.push_back({.x = best.points.back().x, .y = best.points.back().y});
  }
  const ChartPoint farthest = FarthestOf(points);
  return DrawChart({.title = title,
                    .x = {.label = "mean KL from the exact run, nats per token",
                          .ticks = RoundTicks(farthest.x)},
                    .y = {.label = "tok/s", .ticks = RoundTicks(farthest.y)},
                    .series = {line, others, best}});
}

}  // namespace moestro
