// SPDX-License-Identifier: MIT
#include "engine/trace_routing.h"

#include <algorithm>
#include <span>
#include <utility>

namespace moestro {
namespace {

// Our own graphs compute an expert once for a row.
Status CheckDistinct(const Trace& trace) {
  std::vector<ExpertId> sorted;
  for (size_t t = 0; t < trace.tokens() && trace.info().may_repeat; ++t) {
    const ExpertLayers layers = trace.layers_of(t);
    for (size_t l = layers.begin; l < layers.end; ++l) {
      sorted.assign_range(trace.experts(t, l));
      std::ranges::sort(sorted);
      const auto twice = std::ranges::adjacent_find(sorted);
      if (twice == sorted.end()) continue;
      return Fail(Errc::kInvalidRequest,
                  "layer {} of token {} names expert {} twice, as libllama's graphs of some models "
                  "do; such routing can be simulated, not run",
                  l, t, twice->value);
    }
  }
  return {};
}

}  // namespace

Result<TraceRouting> TraceRouting::Create(Trace trace, const ModelId& model) {
  if (trace.info().shape() != model.shape) {
    return Fail(Errc::kInvalidRequest, "the routing is of {}, the model is {}; their shapes differ",
                trace.info().model.text(), model.text());
  }
  Tokens sources;
  Tokens others;
  for (size_t t = 0; t < trace.tokens(); ++t) {
    (trace.is_source(t) ? sources : others).all.push_back(t);
  }
  if (others.all.empty() || (sources.all.empty() && model.shape.n_encoder > 0)) {
    return Fail(Errc::kInvalidRequest, "the routing has no tokens{}; record some",
                trace.tokens() == 0  ? ""
                : others.all.empty() ? " of a target"
                                     : " of a source");
  }
  TRY_STATUS(CheckDistinct(trace));
  return TraceRouting(std::move(trace), std::move(sources), std::move(others));
}

Status TraceRouting::CheckLittle(uint32_t n_used) const {
  const uint32_t recorded = trace_.info().little;
  if (recorded == n_used) return {};
  if (recorded == 0) {
    return Fail(Errc::kInvalidRequest,
                "the routing does not say what a pass with {} experts chooses; record it with "
                "'moestro trace --little {}'",
                n_used, n_used);
  }
  return Fail(Errc::kInvalidRequest,
              "the routing's little pass is of {} experts, not {}; record another with 'moestro "
              "trace --little {}'",
              recorded, n_used, n_used);
}

void TraceRouting::Begin(Tokens& tokens, size_t rows, bool is_little) {
  const bool is_same = std::exchange(was_little_, is_little) && !is_little;
  if (!is_same) tokens.first = tokens.next;
  tokens.next = (tokens.first + rows) % tokens.all.size();
}

void TraceRouting::Apply(ExpertLayerId layer, Routing& routing, RoutedAhead& ahead) {
  const size_t rows = routing.n_tokens;
  const size_t used = routing.n_used;
  const bool is_little = used < trace_.info().shape().n_used;
  const MoeShape& shape = trace_.info().shape();
  const bool is_source = layer.value < shape.n_encoder;
  Tokens& tokens = is_source ? sources_ : others_;
  if (layer.value == shape.layers_of(is_source).begin) Begin(tokens, rows, is_little);
  const size_t distances = ahead.experts.size() / (rows * used);
  const bool is_predicted = trace_.info().depth >= distances;
  const bool has_weights = is_predicted && trace_.info().has_predicted_weights;
  ahead.weights.resize(has_weights ? ahead.experts.size() : 0);
  for (size_t row = 0; row < rows; ++row) {
    const size_t t = tokens.of(row);
    ApplyRow(t, row, layer.value, routing);
    for (size_t d = 0; is_predicted && d < distances; ++d) {
      const auto at = static_cast<ptrdiff_t>((d * rows + row) * used);
      std::ranges::copy(Predicted(t, layer.value, d + 1, is_little), ahead.experts.begin() + at);
      if (!has_weights) continue;
      std::ranges::copy(is_little ? trace_.little_predicted_weights(t, layer.value, d + 1)
                                  : trace_.predicted_weights(t, layer.value, d + 1),
                        ahead.weights.begin() + at);
    }
  }
  if (!is_predicted) ahead.experts.clear();
}

std::span<const ExpertId> TraceRouting::Predicted(size_t t, size_t layer, size_t distance,
                                                  bool is_little) const {
  return is_little ? trace_.little_predicted(t, layer, distance)
                   : trace_.predicted(t, layer, distance);
}

void TraceRouting::ApplyRow(size_t t, size_t row, size_t layer, Routing& routing) const {
  const size_t used = routing.n_used;
  const bool is_little = used < trace_.info().shape().n_used;
  const std::span<const ExpertId> experts =
      is_little ? trace_.little_experts(t, layer) : trace_.experts(t, layer);
  const std::span<const float> recorded_weights =
      is_little ? trace_.little_weights(t, layer) : trace_.weights(t, layer);
  std::ranges::copy(experts.first(used),
                    routing.experts.begin() + static_cast<ptrdiff_t>(row * used));
  const std::span<float> weights = std::span(routing.weights).subspan(row * used, used);
  std::ranges::fill(weights, 1.0F / static_cast<float>(used));
  std::ranges::copy(recorded_weights, weights.begin());
  RoutingCandidates& candidates = routing.candidates;
  const auto at = static_cast<ptrdiff_t>(row * candidates.per_row);
  if (is_little) {  // a little pass records only the ids of its K best candidates
    std::ranges::copy(experts, candidates.experts.begin() + at);
    return;
  }
  if (!trace_.info().has_candidates || candidates.per_row == 0) return;
  const CandidateSpans recorded = trace_.candidates(t, layer);
  std::ranges::copy(recorded.experts, candidates.experts.begin() + at);
  std::ranges::copy(recorded.scores, candidates.scores.begin() + at);
  std::ranges::copy(recorded.raw, candidates.raw.begin() + at);
  candidates.ranges[row] = recorded.ranges[0];
}

}  // namespace moestro
