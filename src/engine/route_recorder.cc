// SPDX-License-Identifier: MIT
#include "engine/route_recorder.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/append.h"

namespace moestro {

RouteRecorder::RouteRecorder(Engine& engine, TraceInfo info, TraceSink sink)
    : engine_(engine),
      sequence_(engine.NewSequence()),
      info_(std::move(info)),
      sink_(std::move(sink)) {
  engine_.SetRouteObserver([this](const SeenRouting& seen) { See(seen); }, info_.depth,
                           info_.has_candidates);
}

RouteRecorder::~RouteRecorder() { engine_.SetRouteObserver({}); }

void RouteRecorder::See(const SeenRouting& seen) {
  CHECK(seen.layer.value == seen_.size());
  seen_.push_back(
      {.phase = seen.kinds.front() == RowKind::kPrompt ? Phase::kPrefill : Phase::kDecode,
       .routing = seen.routing,
       .ahead = {seen.ahead.begin(), seen.ahead.end()}});
  if (seen_.size() < info_.shape().n_layer) return;
  if (status_) status_ = PassOn();
  seen_.clear();
}

Status RouteRecorder::Record(std::span<const Token> tokens, size_t prefill) {
  sequence_.CutBack(0);
  seen_.clear();
  status_ = {};
  starts_sequence_ = true;
  prefill = std::min(prefill, tokens.size());
  for (size_t at = 0; at < tokens.size();) {
    const size_t n = at < prefill ? prefill - at : 1;
    TRY_STATUS(Append(engine_, sequence_, tokens.subspan(at, n)));
    TRY_STATUS(status_);
    at += n;
  }
  return {};
}

// The tokens of a chunk, each with all its layers.
Status RouteRecorder::PassOn() {
  std::vector<ExpertId> experts;
  std::vector<float> weights;
  std::vector<ExpertId> predicted;
  RoutingCandidates candidates;
  const uint32_t n_tokens = seen_.front().routing.n_tokens;
  for (uint32_t t = 0; t < n_tokens; ++t) {
    experts.clear();
    weights.clear();
    predicted.clear();
    candidates = {};
    for (const Seen& layer : seen_) {
      const Routing& routing = layer.routing;
      experts.append_range(routing.experts_of(t));
      const std::span<const ExpertId> ahead = layer.ahead;
      for (size_t at = t; at * routing.n_used < ahead.size(); at += n_tokens) {
        predicted.append_range(ahead.subspan(at * routing.n_used, routing.n_used));
      }
      if (info_.has_weights) weights.append_range(routing.weights_of(t));
      if (info_.has_candidates) candidates.Append(routing.candidates.row(t));
    }
    TRY_STATUS(sink_({.phase = seen_.front().phase,
                      .starts_sequence = std::exchange(starts_sequence_, false),
                      .experts = experts,
                      .weights = weights,
                      .predicted = predicted,
                      .candidates = candidates.all()}));
  }
  return {};
}

}  // namespace moestro
