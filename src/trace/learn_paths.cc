// SPDX-License-Identifier: MIT
#include "trace/learn_paths.h"

#include <algorithm>
#include <span>
#include <vector>

#include "decide/path_counter.h"

namespace moestro {
namespace {

size_t InBoth(std::span<const ExpertId> guesses, std::span<const ExpertId> chosen) {
  return static_cast<size_t>(
      std::ranges::count_if(chosen, [&](ExpertId e) { return std::ranges::contains(guesses, e); }));
}

}  // namespace

PathTable LearnPaths(const Trace& trace, TokenRange range) {
  const TraceInfo& info = trace.info();
  PathCounter counter({.layers = info.n_layer, .experts = info.n_expert, .used = info.n_used});
  std::vector<ExpertId> token;
  for (size_t t = range.begin; t < range.end; ++t) {
    token.clear();
    for (size_t l = 0; l < info.n_layer; ++l) token.append_range(trace.experts(t, l));
    counter.Add(token);
  }
  return counter.Learn();
}

PathRecall MeasurePaths(const PathTable& table, const Trace& trace, TokenRange range) {
  const TraceInfo& info = trace.info();
  std::vector<ExpertId> best(info.n_used);
  std::vector<float> scores;
  size_t paths = 0;
  size_t popular = 0;
  size_t repeat = 0;
  size_t asked = 0;
  for (size_t t = range.begin; t < range.end; ++t) {
    for (size_t l = 1; l < info.n_layer; ++l) {
      const auto chosen = trace.experts(t, l);
      const auto earlier = l >= 2 ? trace.experts(t, l - 2) : std::span<const ExpertId>();
      table.Rank(l, trace.experts(t, l - 1), earlier, best, scores);
      paths += InBoth(best, chosen);
      table.Rank(l, {}, {}, best, scores);
      popular += InBoth(best, chosen);
      if (t > 0) repeat += InBoth(trace.experts(t - 1, l), chosen);
      asked += chosen.size();
    }
  }
  const auto share = [asked](size_t part) {
    return asked == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(asked);
  };
  return {.paths = share(paths), .popular = share(popular), .repeat = share(repeat)};
}

}  // namespace moestro
