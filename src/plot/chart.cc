// SPDX-License-Identifier: MIT
#include "plot/chart.h"

#include <algorithm>
#include <array>

#include "base/format.h"
#include "plot/svg.h"

namespace moestro {
namespace {

constexpr double kWidth = 720.0;
constexpr double kHeight = 440.0;
constexpr double kLeft = 70.0;
constexpr double kTop = 40.0;
constexpr double kBottom = 390.0;
constexpr double kMargin = 30.0;   // right of the axes
constexpr double kLegend = 130.0;  // right of the axes where series have names
constexpr double kLegendStep = 22.0;

// Okabe and Ito's, and three more by lightness.
constexpr std::array<std::string_view, 10> kColours = {"#0072b2", "#e69f00", "#009e73", "#cc79a7",
                                                       "#56b4e9", "#d55e00", "#8c6d1f", "#6a3d9a",
                                                       "#7f7f7f", "#a6761d"};

std::string Line(double x1, double y1, double x2, double y2, std::string_view style) {
  return Format("<line x1='{:.1f}' y1='{:.1f}' x2='{:.1f}' y2='{:.1f}' {}/>\n", x1, y1, x2, y2,
                style);
}

class ChartWriter {
 public:
  explicit ChartWriter(const Chart& chart) : chart_(chart) {
    const bool has_names =
        std::ranges::any_of(chart.series, [](const ChartSeries& s) { return !s.name.empty(); });
    right_ = kWidth - (has_names ? kLegend : kMargin);
  }

  std::string Write() {
    DrawAxes();
    for (const ChartSeries& series : chart_.series) {
      if (series.is_joined) DrawLine(series);
      for (const ChartPoint& point : series.points) DrawPoint(series, point);
      if (!series.name.empty()) AddToLegend(series);
    }
    return SvgDocument({.width = kWidth, .height = kHeight, .middle = middle()}, chart_.title,
                       body_);
  }

 private:
  double middle() const { return (kLeft + right_) / 2.0; }
  double X(double x) const { return kLeft + (right_ - kLeft) * chart_.x.share(x); }
  double Y(double y) const { return kBottom - (kBottom - kTop) * chart_.y.share(y); }
  static std::string Style(const ChartSeries& series, double width) {
    return Format("stroke='{}' stroke-width='{}'{}", series.colour, width,
                  series.is_dashed ? " stroke-dasharray='6 4'" : "");
  }

  void DrawAxes() {
    for (const double tick : chart_.y.ticks) {
      body_ += Line(kLeft, Y(tick), right_, Y(tick), "stroke='#ddd'");
      body_ += SvgText(kLeft - 8.0, Y(tick) + 4.0, "end", Format("{:.4g}{}", tick, chart_.y.unit));
    }
    for (const double tick : chart_.x.ticks) {
      body_ += Line(X(tick), kBottom, X(tick), kBottom + 5.0, "stroke='#999'");
      body_ += SvgText(X(tick), kBottom + 19.0, "middle", Format("{:.4g}{}", tick, chart_.x.unit));
    }
    body_ += Format("<path d='M {} {} V {} H {}' fill='none' stroke='#333'/>\n", kLeft, kTop,
                    kBottom, right_);
    body_ += SvgText(middle(), kBottom + 40.0, "middle", chart_.x.label);
    body_ += SvgText(kLeft, kTop - 10.0, "middle", chart_.y.label);
  }

  void DrawLine(const ChartSeries& series) {
    std::vector<ChartPoint> points = series.points;
    std::ranges::sort(points, {}, &ChartPoint::x);
    std::string places;
    for (const ChartPoint& point : points) {
      places += Format("{}{:.1f},{:.1f}", places.empty() ? "" : " ", X(point.x), Y(point.y));
    }
    body_ += Format("<polyline points='{}' fill='none' {}/>\n", places, Style(series, 2.0));
  }

  void DrawPoint(const ChartSeries& series, const ChartPoint& point) {
    const double x = X(point.x);
    const double y = Y(point.y);
    if (point.x_error > 0.0) {
      const double from = std::max(point.x - point.x_error, chart_.x.ticks.front());
      body_ += Line(X(from), y, X(point.x + point.x_error), y, Style(series, 1.0));
    }
    if (series.radius > 0.0) {
      body_ += Format("<circle cx='{:.1f}' cy='{:.1f}' r='{}' fill='{}'/>\n", x, y, series.radius,
                      series.colour);
    }
    if (point.label.empty()) return;
    const bool is_right = x > middle();  // the label stands towards the middle
    body_ +=
        SvgText(is_right ? x - 7.0 : x + 7.0, y - 6.0, is_right ? "end" : "start", point.label);
  }

  void AddToLegend(const ChartSeries& series) {
    const double y = kTop + kLegendStep * static_cast<double>(n_named_++);
    body_ += Line(right_ + 20.0, y, right_ + 44.0, y, Style(series, 2.0));
    body_ += SvgText(right_ + 50.0, y + 4.0, "start", series.name);
  }

  const Chart& chart_;
  double right_ = 0.0;  // end of the axes
  size_t n_named_ = 0;
  std::string body_;
};

}  // namespace

std::string DrawChart(const Chart& chart) { return ChartWriter(chart).Write(); }

std::string_view SeriesColour(size_t index) { return kColours[index % kColours.size()]; }

}  // namespace moestro
