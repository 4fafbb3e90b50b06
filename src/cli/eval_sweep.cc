// SPDX-License-Identifier: MIT
#include "cli/eval_sweep.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <utility>

#include "base/check.h"
#include "base/format.h"
#include "engine/engine_options.h"
#include "engine/knobs.h"
#include "plot/svg.h"

namespace moestro {
namespace {

constexpr size_t kMostCombinations = 1000;

// The parts of `text` between separators, at least one.
std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

struct Column {
  std::string_view name;
  double (*value)(const EvalPoint& point);
};

// Under their names in --json.
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

double KlOf(const EvalPoint& point) { return point.figures.against->kl_mean.value; }

constexpr double kPlotWidth = 720.0;
constexpr double kPlotHeight = 440.0;
constexpr double kPlotLeft = 70.0;
constexpr double kPlotRight = 690.0;
constexpr double kPlotTop = 40.0;
constexpr double kPlotBottom = 390.0;
constexpr std::string_view kFrontColour = "#d55e00";
constexpr std::string_view kOtherColour = "#7f7f7f";

// From 0 to a whole number of round steps (1, 2 or 5 times a power of ten) that holds `most`.
struct Axis {
  double step = 1.0;
  int steps = 1;

  explicit Axis(double most) {
    if (!(most > 0.0) || !std::isfinite(most)) return;
    const double rough = most / 5.0;
    const double power = std::pow(10.0, std::floor(std::log10(rough)));
    const double leading = rough / power;
    step = power * (leading <= 1.0 ? 1.0 : leading <= 2.0 ? 2.0 : leading <= 5.0 ? 5.0 : 10.0);
    // Not beyond the last step for a rounding error.
    steps = std::max(1, static_cast<int>(std::ceil(most / step - 1e-9)));
  }
  double share(double value) const { return std::min(value / (step * steps), 1.0); }
};

class Drawing {
 public:
  explicit Drawing(const std::vector<EvalPoint>& points)
      : x_(Most(points, [](const EvalPoint& p) { return KlOf(p) + Error(p); })),
        y_(Most(points, [](const EvalPoint& p) { return p.decode_tps; })) {}

  std::string Axes() const {
    std::string svg;
    for (int i = 0; i <= y_.steps; ++i) {
      const double y = kPlotBottom - (kPlotBottom - kPlotTop) * i / y_.steps;
      svg += Format("<line x1='{0}' y1='{1:.1f}' x2='{2}' y2='{1:.1f}' stroke='#ddd'/>\n",
                    kPlotLeft, y, kPlotRight, y);
      svg += SvgText(kPlotLeft - 8.0, y + 4.0, "end", Format("{:.4g}", y_.step * i));
    }
    for (int i = 0; i <= x_.steps; ++i) {
      const double x = kPlotLeft + (kPlotRight - kPlotLeft) * i / x_.steps;
      svg += Format("<line x1='{0:.1f}' y1='{1}' x2='{0:.1f}' y2='{2}' stroke='#999'/>\n", x,
                    kPlotBottom, kPlotBottom + 5.0);
      svg += SvgText(x, kPlotBottom + 19.0, "middle", Format("{:.4g}", x_.step * i));
    }
    svg += Format("<path d='M {0} {1} V {2} H {3}' fill='none' stroke='#333'/>\n", kPlotLeft,
                  kPlotTop, kPlotBottom, kPlotRight);
    svg += SvgText((kPlotLeft + kPlotRight) / 2.0, kPlotBottom + 40.0, "middle",
                   "mean KL from the exact run, nats per token");
    return svg + SvgText(kPlotLeft, kPlotTop - 10.0, "middle", "tok/s");
  }

  // A dot with its settings beside it, and a bar of one standard error to each side.
  std::string Dot(const EvalPoint& point, bool is_on_front) const {
    const double x = X(KlOf(point));
    const double y = Y(point);
    const std::string_view colour = is_on_front ? kFrontColour : kOtherColour;
    std::string svg = Format(
        "<line x1='{:.1f}' y1='{:.1f}' x2='{:.1f}' y2='{:.1f}' stroke='{}'/>\n",
        X(std::max(0.0, KlOf(point) - Error(point))), y, X(KlOf(point) + Error(point)), y, colour);
    svg += Format("<circle cx='{:.1f}' cy='{:.1f}' r='4' fill='{}'/>\n", x, y, colour);
    const bool is_right = x > (kPlotLeft + kPlotRight) / 2.0;
    return svg + SvgText(is_right ? x - 7.0 : x + 7.0, y - 6.0, is_right ? "end" : "start",
                         ToText(point.settings));
  }

  std::string Front(std::vector<EvalPoint> points) const {
    std::ranges::sort(points, {}, KlOf);
    std::string places;
    for (const EvalPoint& point : points) {
      places += Format("{}{:.1f},{:.1f}", places.empty() ? "" : " ", X(KlOf(point)), Y(point));
    }
    return Format("<polyline points='{}' fill='none' stroke='{}' stroke-width='2'/>\n", places,
                  kFrontColour);
  }

 private:
  static double Most(const std::vector<EvalPoint>& points, double (*of)(const EvalPoint&)) {
    double most = 0.0;
    for (const EvalPoint& point : points) most = std::max(most, of(point));
    return most;
  }
  static double Error(const EvalPoint& point) {
    const double error = point.figures.against->kl_mean.error;
    return std::isfinite(error) ? error : 0.0;
  }
  double X(double kl) const { return kPlotLeft + (kPlotRight - kPlotLeft) * x_.share(kl); }
  double Y(const EvalPoint& point) const {
    return kPlotBottom - (kPlotBottom - kPlotTop) * y_.share(point.decode_tps);
  }

  Axis x_;
  Axis y_;
};

}  // namespace

Result<std::vector<KnobSettings>> ParseSweep(std::string_view text) {
  std::vector<KnobSettings> all = {{}};
  for (const std::string& part : Split(text, ';')) {
    const size_t equals = part.find('=');
    if (equals == std::string::npos) {
      return Fail(Errc::kUsage, "'{}' is no sweep; write for example cache=25%,50%", part);
    }
    const std::string knob = part.substr(0, equals);
    if (std::ranges::contains(all.front(), knob, &KnobSetting::knob)) {
      return Fail(Errc::kUsage, "{} comes twice; write all its values once: {}=A,B", knob, knob);
    }
    std::vector<KnobSettings> combined;
    const std::vector<std::string> values = Split(std::string_view(part).substr(equals + 1), ',');
    if (all.size() * values.size() > kMostCombinations) {
      return Fail(Errc::kUsage, "a sweep of more than {} combinations; leave some values out",
                  kMostCombinations);
    }
    for (const std::string& value : values) {
      EngineOptions unused;
      TRY_STATUS(SetKnob(unused, knob, value));
    }
    for (const KnobSettings& before : all) {
      for (const std::string& value : values) {
        combined.push_back(before);
        combined.back().push_back({.knob = knob, .value = value});
      }
    }
    all = std::move(combined);
  }
  return all;
}

EngineOptions WithSettings(EngineOptions options, const KnobSettings& settings) {
  for (const KnobSetting& s : settings) CHECK(SetKnob(options, s.knob, s.value).has_value());
  return options;
}

EvalPoint ToPoint(KnobSettings settings, const EvalResult& result) {
  const PhaseStats& decode = result.report.stats.decode;
  return {.settings = std::move(settings),
          .figures = result.figures,
          .bytes_per_token = result.bytes_per_token(),
          .hit_rate = decode.hit_rate(),
          .decode_tps = decode.tokens_per_second(),
          .percent_of_bound =
              DecodeBound(result.report.stats, result.report.probes).percent(decode.seconds)};
}

MeasuredSetting ToMeasured(const EngineOptions& base, const KnobSettings& settings,
                           const EvalResult& result) {
  const EngineOptions options = WithSettings(base, settings);
  MeasuredSetting measured{.knobs = settings};
  for (KnobSetting& changed : ChangedKnobs(options)) {
    if (std::ranges::contains(settings, changed.knob, &KnobSetting::knob)) continue;
    measured.knobs.push_back(std::move(changed));
  }
  for (KnobSetting& s : measured.knobs) {
    const bool is_file = (s.knob == "low" || s.knob == "norms") && !s.value.empty();
    if (is_file) s.value = std::filesystem::absolute(s.value).lexically_normal().string();
  }
  const EvalFigures::Against& against = *result.figures.against;
  measured.is_exact = options.is_exact();
  measured.kl_mean = against.kl_mean.value;
  if (std::isfinite(against.kl_mean.error)) measured.kl_se = against.kl_mean.error;
  measured.decode_tps = result.report.stats.decode.tokens_per_second();
  measured.bytes_per_token = result.bytes_per_token();
  measured.perplexity = result.figures.perplexity.value;
  measured.slots = result.report.memory.n_slots;
  measured.low_slots = result.report.memory.n_low_slots;
  return measured;
}

std::vector<bool> ParetoFront(const std::vector<EvalPoint>& points) {
  std::vector<bool> front;
  for (const EvalPoint& point : points) {
    front.push_back(std::ranges::none_of(points, [&](const EvalPoint& other) {
      const bool is_as_good = other.decode_tps >= point.decode_tps && KlOf(other) <= KlOf(point);
      return is_as_good && (other.decode_tps > point.decode_tps || KlOf(other) < KlOf(point));
    }));
  }
  return front;
}

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
  const Drawing drawing(points);
  const std::vector<bool> front = ParetoFront(points);
  std::vector<EvalPoint> best;
  std::string dots;
  for (size_t i = 0; i < points.size(); ++i) {
    dots += drawing.Dot(points[i], front[i]);
    if (front[i]) best.push_back(points[i]);
  }
  return SvgDocument(
      {.width = kPlotWidth, .height = kPlotHeight, .middle = (kPlotLeft + kPlotRight) / 2.0}, title,
      drawing.Axes() + drawing.Front(std::move(best)) + dots);
}

}  // namespace moestro
