// SPDX-License-Identifier: MIT
#include "cli/sweep_plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string_view>

#include "base/format.h"
#include "plot/svg.h"

namespace moestro {
namespace {

constexpr double kWidth = 720.0;
constexpr double kHeight = 440.0;
constexpr double kLeft = 60.0;
constexpr double kRight = 590.0;  // the legend is right of it
constexpr double kTop = 40.0;
constexpr double kBottom = 390.0;
constexpr double kLegendStep = 22.0;

// Told apart by people who see few colours, too (Okabe and Ito, and three more by lightness).
constexpr std::array<std::string_view, 10> kColours = {"#0072b2", "#e69f00", "#009e73", "#cc79a7",
                                                       "#56b4e9", "#d55e00", "#8c6d1f", "#6a3d9a",
                                                       "#7f7f7f", "#a6761d"};

struct Point {
  double percent = 0.0;
  double rate = 0.0;
};

class Plot {
 public:
  explicit Plot(const std::vector<SimLine>& lines) {
    for (const SimLine& line : lines) {
      percents_.insert(line.percent);
      highest_ = std::max(highest_, line.result.hit_rate());
    }
    // A tenth more than needed, in whole tenths.
    highest_ = std::clamp(std::ceil(highest_ * 10.0) / 10.0, 0.1, 1.0);
  }

  double X(double percent) const {
    const double least = std::log(*percents_.begin());
    const double most = std::log(*percents_.rbegin());
    if (most <= least) return (kLeft + kRight) / 2.0;
    return kLeft + (kRight - kLeft) * (std::log(percent) - least) / (most - least);
  }
  double Y(double rate) const { return kBottom - (kBottom - kTop) * rate / highest_; }

  std::string Axes() const {
    std::string svg;
    for (int tenths = 0; tenths <= std::lround(highest_ * 10.0); ++tenths) {
      const double y = Y(tenths / 10.0);
      svg += Format("<line x1='{}' y1='{:.1f}' x2='{}' y2='{:.1f}' stroke='#ddd'/>\n", kLeft, y,
                    kRight, y);
      svg += SvgText(kLeft - 8.0, y + 4.0, "end", Format("{} %", tenths * 10));
    }
    for (const double percent : percents_) {
      const double x = X(percent);
      svg += Format("<line x1='{0:.1f}' y1='{1}' x2='{0:.1f}' y2='{2}' stroke='#999'/>\n", x,
                    kBottom, kBottom + 5.0);
      svg += SvgText(x, kBottom + 19.0, "middle", Format("{:.4g} %", percent));
    }
    svg += Format("<path d='M {0} {1} V {2} H {3}' fill='none' stroke='#333'/>\n", kLeft, kTop,
                  kBottom, kRight);
    svg += SvgText((kLeft + kRight) / 2.0, kBottom + 40.0, "middle", "slots, of all experts");
    return svg + SvgText(kLeft, kTop - 10.0, "middle", "hits");
  }

  // The line of one policy and its entry in the legend.
  std::string Line(const std::string& policy, std::vector<Point> points, size_t index) const {
    std::ranges::sort(points, {}, &Point::percent);
    const bool is_limit = policy == "belady";
    const std::string_view colour = is_limit ? "#000" : kColours[index % kColours.size()];
    const std::string_view dashes = is_limit ? " stroke-dasharray='6 4'" : "";
    std::string places;
    std::string dots;
    for (const Point& point : points) {
      const double x = X(point.percent);
      const double y = Y(point.rate);
      places += Format("{}{:.1f},{:.1f}", places.empty() ? "" : " ", x, y);
      dots += Format("<circle cx='{:.1f}' cy='{:.1f}' r='2.5' fill='{}'/>\n", x, y, colour);
    }
    const double y = kTop + kLegendStep * static_cast<double>(index);
    std::string svg = Format("<polyline points='{}' fill='none' stroke='{}' stroke-width='2'{}/>\n",
                             places, colour, dashes);
    svg += dots;
    svg +=
        Format("<line x1='{}' y1='{:.1f}' x2='{}' y2='{:.1f}' stroke='{}' stroke-width='2'{}/>\n",
               kRight + 20.0, y, kRight + 44.0, y, colour, dashes);
    return svg + SvgText(kRight + 50.0, y + 4.0, "start", policy);
  }

 private:
  std::set<double> percents_;
  double highest_ = 0.0;
};

}  // namespace

std::string SweepPlot(const std::string& title, const std::vector<SimLine>& lines) {
  const Plot plot(lines);
  std::string svg = plot.Axes();
  std::vector<std::string> policies;
  for (const SimLine& line : lines) {
    if (std::ranges::find(policies, line.policy) == policies.end()) {
      policies.push_back(line.policy);
    }
  }
  for (size_t i = 0; i < policies.size(); ++i) {
    std::vector<Point> points;
    for (const SimLine& line : lines) {
      if (line.policy != policies[i]) continue;
      points.push_back({.percent = line.percent, .rate = line.result.hit_rate()});
    }
    svg += plot.Line(policies[i], std::move(points), i);
  }
  return SvgDocument({.width = kWidth, .height = kHeight, .middle = (kLeft + kRight) / 2.0}, title,
                     svg);
}

}  // namespace moestro
