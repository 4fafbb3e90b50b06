// SPDX-License-Identifier: MIT
#include "lab/eval_report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "base/number.h"
#include "base/text.h"
#include "cli/report.h"
#include "offline/eval/eval_stats.h"
#include "plot/chart.h"

namespace moestro {
namespace {

// "0.0123 ± 0.0004", in units of 1 / `scale`.
std::string WithError(const Estimate& estimate, double scale = 1.0) {
  std::string text = Format("{:.4g}", estimate.value * scale);
  if (std::isnan(estimate.error)) return text + " (error not known: too few tokens)";
  return text + Format(" ± {:.2g}", estimate.error * scale);
}

void SetEstimate(Json& object, std::string_view name, std::string_view error_name,
                 const Estimate& estimate) {
  object.Set(name, estimate.value).Set(error_name, estimate.error);
}

constexpr double kChance = 0.05;  // a split that is less likely than this counts as a difference

double ShareOf(uint64_t right, uint64_t items) {
  return items > 0 ? static_cast<double>(right) / static_cast<double>(items) : 0.0;
}

Json ItemsAsJson(const std::vector<ItemOutcome>& items) {
  Json array = Json::Array();
  for (const ItemOutcome& item : items) {
    Json object = Json::Object();
    object.Set("item", item.item).Set("right", item.is_right).Set("answer", item.answer);
    if (!item.log_probs.empty()) {
      Json sums = Json::Array();
      for (const double sum : item.log_probs) sums.Push(sum);
      object.Set("log_probs", std::move(sums));
    }
    array.Push(std::move(object));
  }
  return array;
}

}  // namespace

std::string DescribeFigures(const EvalFigures& figures, uint64_t windows) {
  std::string text = Format("text     {} tokens in {} windows\n", figures.tokens, windows);
  text += Format("ppl      {}\n", WithError(figures.perplexity));
  if (figures.against) {
    const EvalFigures::Against& a = *figures.against;
    text += Format("exact    perplexity {:.4g}\n", a.exact_perplexity);
    text += Format("KL       {} nats per token\n", WithError(a.kl_mean));
    text += Format("         99 %: {}, 99.9 %: {}, maximum: {:.4g}\n", WithError(a.kl_p99),
                   WithError(a.kl_p999), a.kl_max);
    text += Format("delta p  {} % (root mean square, of the text's next token)\n",
                   WithError(a.delta_p_rms, 100.0));
    text += Format("top-1    {} % the same\n", WithError(a.top1_agreement, 100.0));
  }
  return text;
}

std::string DescribeEval(const EvalResult& result) {
  std::string text = DescribeFigures(result.figures, result.windows);
  text += Format("asked    {} per token\n",
                 FormatBytes(static_cast<uint64_t>(std::llround(result.bytes_per_token()))));
  return text + SummaryText(result.report);
}

Json FiguresAsJson(const EvalFigures& figures, uint64_t windows) {
  Json object = Json::Object();
  object.Set("tokens", figures.tokens).Set("windows", windows);
  SetEstimate(object, "perplexity", "perplexity_se", figures.perplexity);
  if (figures.against) {
    const EvalFigures::Against& a = *figures.against;
    object.Set("exact_perplexity", a.exact_perplexity);
    SetEstimate(object, "kl_mean", "kl_se", a.kl_mean);
    SetEstimate(object, "kl_p99", "kl_p99_se", a.kl_p99);
    SetEstimate(object, "kl_p999", "kl_p999_se", a.kl_p999);
    object.Set("kl_max", a.kl_max);
    SetEstimate(object, "delta_p_rms", "delta_p_rms_se", a.delta_p_rms);
    SetEstimate(object, "top1_agreement", "top1_agreement_se", a.top1_agreement);
  }
  return object;
}

Json EvalAsJson(const EvalResult& result) {
  Json object = FiguresAsJson(result.figures, result.windows);
  object.Set("bytes_per_token", result.bytes_per_token());
  AddReport(object, result.report);
  return object;
}

std::string DescribeTask(const TaskResult& result) {
  const uint64_t items = result.run.items.size();
  const uint64_t right = result.run.right();
  const Interval interval = ShareInterval(right, items);
  std::string text = Format(
      "score    {:.1f} % (95 % of cases: {:.1f} to {:.1f} %), {} of {} items\n",
      100.0 * ShareOf(right, items), 100.0 * interval.low, 100.0 * interval.high, right, items);
  if (result.too_long > 0) {
    text +=
        Format("too long {} items do not fit the context and were not asked\n", result.too_long);
  }
  if (result.against) {
    const TaskResult::Against& a = *result.against;
    const double p = McNemar(a.gained, a.lost);
    text += Format("exact    {:.1f} %, {} of {} items\n", 100.0 * ShareOf(a.right, items), a.right,
                   items);
    text += Format(
        "flips    {} to right, {} to wrong: {} chance (McNemar, p = {:.3g}); {} answers "
        "differ\n",
        a.gained, a.lost, p < kChance ? "more than" : "no more than", p, a.changed);
  }
  return text + SummaryText(result.run.report);
}

Json TaskAsJson(const TaskResult& result) {
  const uint64_t items = result.run.items.size();
  const uint64_t right = result.run.right();
  const Interval interval = ShareInterval(right, items);
  Json object = Json::Object();
  object.Set("items", items)
      .Set("too_long", result.too_long)
      .Set("right", right)
      .Set("score", ShareOf(right, items))
      .Set("score_low", interval.low)
      .Set("score_high", interval.high);
  if (result.against) {
    const TaskResult::Against& a = *result.against;
    const double p = McNemar(a.gained, a.lost);
    object.Set("exact_score", ShareOf(a.right, items))
        .Set("changed_answers", a.changed)
        .Set("flips_to_right", a.gained)
        .Set("flips_to_wrong", a.lost)
        .Set("mcnemar_p", p)
        .Set("differs", p < kChance);
  }
  object.Set("outcomes", ItemsAsJson(result.run.items));
  AddReport(object, result.run.report);
  return object;
}

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
