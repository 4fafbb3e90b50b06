// SPDX-License-Identifier: MIT
#include "offline/fit/fit_order.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <tuple>

#include "base/number.h"
#include "base/result.h"
#include "base/text.h"

namespace moestro {

std::string FitTolerance::Text(double loss) const {
  return kind == Kind::kKl ? Format("KL={:.4g}", loss) : Format("ppl={:.4g}%", loss * 100.0);
}

Result<FitTolerance> ParseTolerance(std::string_view text) {
  const bool is_kl = text.starts_with("KL=");
  const bool is_ppl = text.starts_with("ppl=") && text.ends_with('%');
  std::string_view number = text.substr(is_kl ? 3 : std::min<size_t>(4, text.size()));
  if (is_ppl) number.remove_suffix(1);
  const double value = ParseNumber<double>(number).value_or(0.0);
  if ((!is_kl && !is_ppl) || !(value > 0.0)) {
    return Fail(Errc::kUsage, "'{}' is no tolerance; give KL=0.01 or ppl=1%", text);
  }
  return FitTolerance{.kind = is_kl ? FitTolerance::Kind::kKl : FitTolerance::Kind::kPerplexity,
                      .most = is_kl ? value : value / 100.0};
}

namespace {

std::vector<double> Ranks(std::span<const double> values) {
  std::vector<uint32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::sort(order, {}, [&](uint32_t i) { return values[i]; });
  std::vector<double> ranks(values.size());
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin + 1;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    for (size_t i = begin; i < end; ++i) {
      ranks[order[i]] = static_cast<double>(begin + end - 1) / 2.0;
    }
    begin = end;
  }
  return ranks;
}

double MeanOf(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace

double NoiseShare(std::span<const Estimate> measured) {
  constexpr double kNothing = std::numeric_limits<double>::infinity();
  if (measured.size() < 2) return kNothing;
  double mean = 0.0;
  double noise = 0.0;
  for (const Estimate& e : measured) {
    mean += e.value / static_cast<double>(measured.size());
    noise += e.error * e.error / static_cast<double>(measured.size());
  }
  double variance = 0.0;
  for (const Estimate& e : measured) {
    variance += (e.value - mean) * (e.value - mean) / static_cast<double>(measured.size() - 1);
  }
  return variance > 0.0 && std::isfinite(noise) ? noise / variance : kNothing;
}

std::vector<uint32_t> RisingOrder(std::span<const double> score, std::span<const double> tie) {
  CHECK(score.size() == tie.size());
  std::vector<uint32_t> order(score.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::stable_sort(order, [&](uint32_t a, uint32_t b) {
    return std::tie(score[a], tie[a]) < std::tie(score[b], tie[b]);
  });
  return order;
}

std::vector<uint32_t> SpreadOver(uint32_t layers, uint32_t experts) {
  std::mt19937_64 random(1);
  std::vector<uint32_t> all(size_t{layers} * experts);
  for (uint32_t l = 0; l < layers; ++l) {
    std::vector<uint32_t> of_layer(experts);
    std::iota(of_layer.begin(), of_layer.end(), l * experts);
    std::ranges::shuffle(of_layer, random);
    for (uint32_t i = 0; i < experts; ++i) all[size_t{i} * layers + l] = of_layer[i];
  }
  return all;
}

double RankCorrelation(std::span<const double> a, std::span<const double> b) {
  CHECK(a.size() == b.size() && !a.empty());
  const std::vector<double> x = Ranks(a);
  const std::vector<double> y = Ranks(b);
  const double mean_x = MeanOf(x);
  const double mean_y = MeanOf(y);
  double xx = 0.0;
  double yy = 0.0;
  double xy = 0.0;
  for (size_t i = 0; i < x.size(); ++i) {
    xx += (x[i] - mean_x) * (x[i] - mean_x);
    yy += (y[i] - mean_y) * (y[i] - mean_y);
    xy += (x[i] - mean_x) * (y[i] - mean_y);
  }
  return xx > 0.0 && yy > 0.0 ? xy / std::sqrt(xx * yy) : 0.0;
}

}  // namespace moestro
