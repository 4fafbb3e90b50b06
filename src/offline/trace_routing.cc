// SPDX-License-Identifier: MIT
#include "offline/trace_routing.h"

#include <algorithm>
#include <span>
#include <utility>

namespace moestro {

Result<TraceRouting> TraceRouting::Create(Trace trace, const ModelId& model) {
  if (trace.info().shape() != model.shape) {
    return Fail(Errc::kInvalidRequest, "the routing is of {}, the model is {}; their shapes differ",
                trace.info().model.text(), model.text());
  }
  if (trace.tokens() == 0) {
    return Fail(Errc::kInvalidRequest, "the routing has no tokens; record some");
  }
  return TraceRouting(std::move(trace));
}

void TraceRouting::Apply(LayerId layer, Routing& routing, std::vector<ExpertId>& ahead) {
  const size_t rows = routing.n_tokens;
  const size_t used = routing.n_used;
  if (layer.value == 0) {
    first_ = next_;
    next_ = (first_ + rows) % trace_.tokens();
  }
  const size_t distances = ahead.size() / (rows * used);
  const bool is_predicted = trace_.info().depth >= distances;
  RoutingCandidates& candidates = routing.candidates;
  for (size_t row = 0; row < rows; ++row) {
    const size_t t = (first_ + row) % trace_.tokens();
    std::ranges::copy(trace_.experts(t, layer.value),
                      routing.experts.begin() + static_cast<ptrdiff_t>(row * used));
    const std::span<float> weights = std::span(routing.weights).subspan(row * used, used);
    std::ranges::fill(weights, 1.0F / static_cast<float>(used));
    std::ranges::copy(trace_.weights(t, layer.value), weights.begin());
    for (size_t d = 0; is_predicted && d < distances; ++d) {
      std::ranges::copy(trace_.predicted(t, layer.value, d + 1),
                        ahead.begin() + static_cast<ptrdiff_t>((d * rows + row) * used));
    }
    if (!trace_.info().has_candidates || candidates.per_row == 0) continue;
    const CandidateSpans recorded = trace_.candidates(t, layer.value);
    const auto at = static_cast<ptrdiff_t>(row * candidates.per_row);
    std::ranges::copy(recorded.experts, candidates.experts.begin() + at);
    std::ranges::copy(recorded.scores, candidates.scores.begin() + at);
    std::ranges::copy(recorded.raw, candidates.raw.begin() + at);
    candidates.ranges[row] = recorded.ranges[0];
  }
  if (!is_predicted) ahead.clear();
}

}  // namespace moestro
