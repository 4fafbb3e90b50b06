// SPDX-License-Identifier: MIT
#include "trace/summary.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include "base/distribution.h"
#include "base/terminal.h"
#include "base/text.h"
#include "decide/layer/lossy_options.h"

namespace moestro {
namespace {

constexpr size_t kWindow = 100;
constexpr double kSure = LittleOptions().gamma;

double Share(double part, double whole) { return whole > 0.0 ? part / whole : 0.0; }

// Uses of every expert, [layer][expert].
std::vector<double> Counts(const Trace& trace, size_t first, size_t last) {
  const TraceInfo& info = trace.info();
  std::vector<double> counts(size_t{info.shape().n_layer} * info.shape().n_expert);
  for (size_t t = first; t < last; ++t) {
    const ExpertLayers layers = trace.layers_of(t);
    for (size_t l = layers.begin; l < layers.end; ++l) {
      for (const ExpertId e : trace.experts(t, l))
        counts[l * info.shape().n_expert + e.value] += 1.0;
    }
  }
  return counts;
}

// Requests for experts of all tokens.
double Requests(const Trace& trace) {
  double requests = 0.0;
  for (size_t t = 0; t < trace.tokens(); ++t) {
    requests += static_cast<double>(trace.layers_of(t).size()) * trace.info().shape().n_used;
  }
  return requests;
}

double PopularShare(const Trace& trace) {
  const TraceInfo& info = trace.info();
  std::vector<double> counts = Counts(trace, 0, trace.tokens());
  const size_t eighth = std::max<size_t>(1, info.shape().n_expert / 8);
  double popular = 0.0;
  for (size_t l = 0; l < info.shape().n_layer; ++l) {
    const auto row = std::span(counts).subspan(l * info.shape().n_expert, info.shape().n_expert);
    std::ranges::sort(row, std::greater<>());
    popular += std::accumulate(row.begin(), row.begin() + static_cast<ptrdiff_t>(eighth), 0.0);
  }
  return Share(popular, Requests(trace));
}

double MeanEntropy(const Trace& trace) {
  const TraceInfo& info = trace.info();
  const size_t n = info.shape().n_expert;
  if (trace.tokens() == 0 || n < 2) return 0.0;
  const std::vector<double> counts = Counts(trace, 0, trace.tokens());
  double entropy = 0.0;
  for (size_t l = 0; l < info.shape().n_layer; ++l) {
    const auto of_layer = std::span(counts).subspan(l * n, n);
    const double requests = std::accumulate(of_layer.begin(), of_layer.end(), 0.0);
    for (const double count : of_layer) {
      if (count > 0.0) entropy -= count / requests * std::log(count / requests);
    }
  }
  return entropy / info.shape().n_layer / std::log(static_cast<double>(info.shape().n_expert));
}

double DistinctPerWindow(const Trace& trace) {
  double distinct = 0.0;
  size_t windows = 0;
  for (size_t first = 0; first + kWindow <= trace.tokens(); first += kWindow, ++windows) {
    for (const double count : Counts(trace, first, first + kWindow)) distinct += count > 0.0;
  }
  return Share(distinct, static_cast<double>(windows));
}

void MeasureReuse(const Trace& trace, TraceSummary& summary) {
  const TraceInfo& info = trace.info();
  // Token + 1; 0: never.
  std::vector<size_t> last(size_t{info.shape().n_layer} * info.shape().n_expert, 0);
  std::vector<double> distances;
  double at_once = 0.0;
  for (size_t t = 0; t < trace.tokens(); ++t) {
    const ExpertLayers layers = trace.layers_of(t);
    for (size_t l = layers.begin; l < layers.end; ++l) {
      for (const ExpertId e : trace.experts(t, l)) {
        size_t& before = last[l * info.shape().n_expert + e.value];
        if (before > 0) distances.push_back(static_cast<double>(t + 1 - before));
        at_once += before > 0 && before == t;
        before = t + 1;
      }
    }
  }
  summary.reused_next = Share(at_once, Requests(trace));
  if (distances.empty()) return;
  summary.reuse_p50 = Quantile(distances, 0.5);
  summary.reuse_p90 = Quantile(distances, 0.9);
}

// Number of `chosen` experts among the K experts with the highest scores.
size_t Guessed(std::span<const double> scores, std::span<const ExpertId> chosen) {
  std::vector<uint16_t> order(scores.size());
  std::iota(order.begin(), order.end(), uint16_t{0});
  const auto k = static_cast<ptrdiff_t>(chosen.size());
  std::partial_sort(order.begin(), order.begin() + k, order.end(), [&](uint16_t a, uint16_t b) {
    return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
  });
  return static_cast<size_t>(std::ranges::count_if(chosen, [&](ExpertId e) {
    return std::find(order.begin(), order.begin() + k, e.value) != order.begin() + k;
  }));
}

size_t InBoth(std::span<const ExpertId> predicted, std::span<const ExpertId> chosen) {
  return static_cast<size_t>(std::ranges::count_if(
      chosen, [&](ExpertId e) { return std::ranges::find(predicted, e) != predicted.end(); }));
}

// Counts how often an expert of `layer` followed one of the layer before, [before][after].
std::vector<double> Follows(const Trace& trace, size_t layer, size_t tokens) {
  const size_t n = trace.info().shape().n_expert;
  std::vector<double> follows(n * n);
  for (size_t t = 0; t < tokens; ++t) {
    if (!trace.layers_of(t).contains(layer)) continue;
    for (const ExpertId a : trace.experts(t, layer - 1)) {
      for (const ExpertId b : trace.experts(t, layer)) follows[a.value * n + b.value] += 1.0;
    }
  }
  return follows;
}

void MeasureAhead(const Trace& trace, TraceSummary& summary) {
  const TraceInfo& info = trace.info();
  for (size_t distance = 1; distance <= info.depth; ++distance) {
    size_t right = 0;
    size_t asked = 0;
    for (size_t t = 0; t < trace.tokens(); ++t) {
      const ExpertLayers layers = trace.layers_of(t);
      for (size_t l = layers.begin; l + distance < layers.end; ++l) {
        right += InBoth(trace.predicted(t, l, distance), trace.experts(t, l + distance));
        asked += info.shape().n_used;
      }
    }
    summary.recall_ahead.push_back(Share(static_cast<double>(right), static_cast<double>(asked)));
  }
}

void MeasureLittle(const Trace& trace, TraceSummary& summary) {
  const TraceInfo& info = trace.info();
  if (info.little == 0) return;
  size_t right = 0;
  size_t confident = 0;
  for (size_t t = 0; t < trace.tokens(); ++t) {
    if (trace.phase(t) != Phase::kDecode) continue;
    confident += trace.confidence(t) > kSure;
    for (size_t l = info.shape().n_encoder; l < info.shape().n_layer; ++l) {
      right += InBoth(trace.little_experts(t, l), trace.experts(t, l));
    }
  }
  const auto tokens = static_cast<double>(summary.decode_tokens);
  summary.confident = Share(static_cast<double>(confident), tokens);
  summary.little_recall = Share(static_cast<double>(right),
                                tokens * info.shape().decode_layers().size() * info.shape().n_used);
}

void MeasurePrediction(const Trace& trace, TraceSummary& summary) {
  const TraceInfo& info = trace.info();
  const size_t half = trace.tokens() / 2;
  if (half == 0 || info.shape().n_layer < 2) return;
  const size_t n = info.shape().n_expert;
  const std::vector<double> counts = Counts(trace, 0, half);
  size_t popular = 0;
  size_t paths = 0;
  size_t repeated = 0;
  size_t asked = 0;
  std::vector<double> scores(n);
  for (size_t l = 1; l < info.shape().n_layer; ++l) {
    if (l == info.shape().n_encoder) continue;  // no token goes through the layer before, too
    // One layer's table at a time: with many experts all of them would be large.
    const std::vector<double> follows = Follows(trace, l, half);
    for (size_t t = half; t < trace.tokens(); ++t) {
      if (!trace.layers_of(t).contains(l)) continue;
      const auto chosen = trace.experts(t, l);
      std::ranges::fill(scores, 0.0);
      for (const ExpertId a : trace.experts(t, l - 1)) {
        const double* row = &follows[a.value * n];
        for (size_t e = 0; e < n; ++e) scores[e] += row[e];
      }
      paths += Guessed(scores, chosen);
      popular += Guessed(std::span(counts).subspan(l * n, n), chosen);
      if (trace.layers_of(t - 1).contains(l)) repeated += InBoth(trace.experts(t - 1, l), chosen);
      asked += chosen.size();
    }
  }
  summary.recall_repeat = Share(static_cast<double>(repeated), static_cast<double>(asked));
  summary.recall_paths = Share(static_cast<double>(paths), static_cast<double>(asked));
  summary.recall_popular = Share(static_cast<double>(popular), static_cast<double>(asked));
}

}  // namespace

TraceSummary Summarise(const Trace& trace) {
  TraceSummary summary;
  for (size_t t = 0; t < trace.tokens(); ++t) {
    ++(trace.phase(t) == Phase::kDecode ? summary.decode_tokens : summary.prefill_tokens);
    summary.sequences += t == 0 || trace.starts_sequence(t);
  }
  summary.popular_share = PopularShare(trace);
  summary.entropy = MeanEntropy(trace);
  summary.distinct_per_100 = DistinctPerWindow(trace);
  MeasureReuse(trace, summary);
  MeasurePrediction(trace, summary);
  MeasureAhead(trace, summary);
  MeasureLittle(trace, summary);
  return summary;
}

std::string Describe(const TraceInfo& info, const TraceSummary& s) {
  const uint32_t all = info.shape().n_layer * info.shape().n_expert;
  const uint32_t per_token = info.shape().decode_layers().size() * info.shape().n_used;
  std::string text = Format(
      "model        {}: {} layers{}, {} of {} experts used{}\n",
      info.model.name.empty() ? "unnamed" : Printable(info.model.name), info.shape().n_layer,
      info.shape().n_encoder > 0 ? Format(" ({} of them an encoder's)", info.shape().n_encoder)
                                 : std::string(),
      info.shape().n_used, info.shape().n_expert, info.has_weights ? ", with router weights" : "");
  if (info.experts_guessed) {
    text += "             the number of experts is only the highest id seen plus one\n";
  }
  if (info.token_layers > 0) {
    text += Format("             tokens name the experts of the first {} layer{}\n",
                   info.token_layers, info.token_layers == 1 ? "" : "s");
  }
  text += Format("tokens       {} decode, {} prefill, in {} sequences\n", s.decode_tokens,
                 s.prefill_tokens, s.sequences);
  text += Format(
      "popularity   {:.1f} % of requests go to the most popular eighth of experts; entropy {:.2f} "
      "of "
      "uniform\n",
      100.0 * s.popular_share, s.entropy);
  text += Format("working set  {} experts per token ({:.1f} % of {})", per_token,
                 100.0 * per_token / all, all);
  if (s.distinct_per_100 > 0.0) {
    text += Format(", {:.0f} per 100 tokens ({:.1f} %)", s.distinct_per_100,
                   100.0 * s.distinct_per_100 / all);
  }
  text += Format(
      "\nreuse        {:.1f} % by the next token; distance {:.0f} tokens at the median, {:.0f} at "
      "90 %\n",
      100.0 * s.reused_next, s.reuse_p50, s.reuse_p90);
  text += Format(
      "predictable  {:.1f} % from the layer before, {:.1f} % from popularity (learned on the first "
      "half), {:.1f} % by repeating the last token\n",
      100.0 * s.recall_paths, 100.0 * s.recall_popular, 100.0 * s.recall_repeat);
  for (size_t i = 0; i < s.recall_ahead.size(); ++i) {
    text += Format("predicted    {:.1f} % {} layer{} ahead by that layer's own router\n",
                   100.0 * s.recall_ahead[i], i + 1, i == 0 ? "" : "s");
  }
  if (info.little > 0) {
    text += Format(
        "little       a pass with {} experts names {:.1f} % of the {} by their routers; it is "
        "surer "
        "than {} of the next token {:.1f} % of the time\n",
        info.little, 100.0 * s.little_recall, info.shape().n_used, kSure, 100.0 * s.confident);
  }
  return text;
}

}  // namespace moestro
