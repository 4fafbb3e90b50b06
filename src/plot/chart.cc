// SPDX-License-Identifier: MIT
#include "plot/chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "base/text.h"

namespace moestro {

std::string SvgEscaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string SvgDocument(const SvgPage& page, std::string_view title, std::string_view body) {
  return Format(
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {0} {1}' width='{0}' height='{1}' "
      "font-family='sans-serif' font-size='12'>\n<rect width='100%' height='100%' fill='#fff'/>\n"
      "{2}{3}</svg>\n",
      page.width, page.height, SvgText(page.middle, 18.0, "middle", title), body);
}

std::string SvgText(double x, double y, std::string_view anchor, std::string_view text) {
  return Format("<text x='{:.1f}' y='{:.1f}' text-anchor='{}'>{}</text>\n", x, y, anchor,
                SvgEscaped(text));
}

double ChartAxis::share(double value) const {
  const auto place = [this](double v) { return is_logarithmic ? std::log(v) : v; };
  const double first = place(ticks.front());
  const double last = place(ticks.back());
  if (last <= first) return 0.5;
  return std::clamp((place(value) - first) / (last - first), 0.0, 1.0);
}

std::vector<double> RoundTicks(double most) {
  if (!(most > 0.0) || !std::isfinite(most)) return {0.0, 1.0};
  const double rough = most / 5.0;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double leading = rough / power;
  const double step = power * (leading <= 1.0   ? 1.0
                               : leading <= 2.0 ? 2.0
                               : leading <= 5.0 ? 5.0
                                                : 10.0);
  // A rounding error adds no step.
  const int steps = std::max(1, static_cast<int>(std::ceil(most / step - 1e-9)));
  std::vector<double> ticks;
  for (int i = 0; i <= steps; ++i) ticks.push_back(step * i);
  return ticks;
}

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

namespace {

constexpr double kCell = 14.0;
constexpr double kMapLeft = 60.0;
constexpr double kMapTop = 60.0;
constexpr double kNarrowest = 640.0;  // for the title and the notes
constexpr double kNoteStep = 18.0;

// White to dark blue.
std::string Shade(double share) {
  const auto mix = [&](double from, double to) {
    return static_cast<int>(std::lround(from + (to - from) * share));
  };
  return Format("#{:02x}{:02x}{:02x}", mix(247, 8), mix(251, 48), mix(255, 107));
}

std::string DrawCell(const HeatCell& cell, double x, double y) {
  const std::string fill = cell.share ? Shade(std::clamp(*cell.share, 0.0, 1.0)) : "none";
  std::string svg = Format(
      "<rect x='{:.1f}' y='{:.1f}' width='{}' height='{}' fill='{}' stroke='#ddd'>"
      "<title>{}</title></rect>\n",
      x, y, kCell, kCell, fill, SvgEscaped(cell.tip));
  if (cell.is_marked) {
    svg += Format("<circle cx='{:.1f}' cy='{:.1f}' r='2.5' fill='#e69f00'/>\n", x + kCell / 2.0,
                  y + kCell / 2.0);
  }
  return svg;
}

}  // namespace

std::string DrawHeatMap(const HeatMap& map) {
  std::string body;
  for (uint32_t r = 0; r < map.rows; ++r) {
    const double y = kMapTop + kCell * r;
    body += SvgText(kMapLeft - 6.0, y + kCell - 3.0, "end", Format("{}", r));
    for (uint32_t c = 0; c < map.columns; ++c) {
      body += DrawCell(map.cells[size_t{r} * map.columns + c], kMapLeft + kCell * c, y);
    }
  }
  body += SvgText(kMapLeft - 6.0, kMapTop - 8.0, "end", map.row_label);
  body += SvgText(kMapLeft, kMapTop - 8.0, "start", map.column_label);
  double y = kMapTop + kCell * map.rows + 2.0;
  for (const std::string& note : map.notes)
    body += SvgText(kMapLeft, y += kNoteStep, "start", note);
  const double width = std::max(kMapLeft + kCell * map.columns + 20.0, kNarrowest);
  return SvgDocument({.width = width, .height = y + 12.0, .middle = width / 2.0}, map.title, body);
}

}  // namespace moestro
