// SPDX-License-Identifier: MIT
#include "learned/learn_paths.h"

#include <algorithm>
#include <span>
#include <vector>

namespace moestro {
namespace {

size_t InBoth(std::span<const ExpertId> predicted, std::span<const ExpertId> chosen) {
  return static_cast<size_t>(std::ranges::count_if(
      chosen, [&](ExpertId e) { return std::ranges::contains(predicted, e); }));
}

}  // namespace

void CountTrace(const Trace& trace, size_t most, PathCounter& counter) {
  for (size_t t = 0; t < std::min(trace.tokens(), most); ++t) {
    counter.Add(trace.token(t).experts, trace.is_source(t));
  }
}

PathRecall MeasurePaths(const PathTable& table, const PathCounter& routing, TokenRange range) {
  const MoeShape& shape = routing.shape();
  std::vector<ExpertId> best(shape.n_used);
  std::vector<float> scores;
  size_t paths = 0;
  size_t popular = 0;
  size_t repeat = 0;
  size_t asked = 0;
  for (size_t t = range.begin; t < range.end; ++t) {
    for (size_t l = 1; l < shape.n_layer; ++l) {
      if (!routing.goes_through(t, l, 1)) continue;
      const auto chosen = routing.of(t, l);
      const auto earlier =
          routing.goes_through(t, l, 2) ? routing.of(t, l - 2) : std::span<const ExpertId>();
      table.Rank(l, routing.of(t, l - 1), earlier, best, scores);
      paths += InBoth(best, chosen);
      table.Rank(l, {}, {}, best, scores);
      popular += InBoth(best, chosen);
      if (t > 0 && routing.goes_through(t - 1, l)) repeat += InBoth(routing.of(t - 1, l), chosen);
      asked += chosen.size();
    }
  }
  const auto share = [asked](size_t part) {
    return asked == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(asked);
  };
  return {.paths = share(paths), .popular = share(popular), .repeat = share(repeat)};
}

}  // namespace moestro
