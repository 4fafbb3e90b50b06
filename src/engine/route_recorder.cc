// SPDX-License-Identifier: MIT
#include "engine/route_recorder.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/append.h"

namespace moestro {

RouteRecorder::RouteRecorder(Engine& engine, Trace trace)
    : engine_(engine), sequence_(engine.NewSequence()), trace_(std::move(trace)) {
  engine_.SetRouteObserver(
      [this](const SeenRouting& seen) {
        CHECK(seen.layer.value == seen_.size() % trace_.info().n_layer);
        seen_.push_back(
            {.phase = seen.kinds.front() == RowKind::kPrompt ? Phase::kPrefill : Phase::kDecode,
             .routing = seen.routing,
             .ahead = {seen.ahead.begin(), seen.ahead.end()}});
      },
      trace_.info().depth);
}

RouteRecorder::~RouteRecorder() { engine_.SetRouteObserver({}); }

Status RouteRecorder::Record(std::span<const Token> tokens, size_t prefill) {
  sequence_.CutBack(0);
  prefill = std::min(prefill, tokens.size());
  bool starts = true;
  for (size_t at = 0; at < tokens.size();) {
    const size_t n = at < prefill ? prefill - at : 1;
    seen_.clear();
    TRY_STATUS(Append(engine_, sequence_, tokens.subspan(at, n)));
    TRY_STATUS(Keep(starts));
    starts = false;
    at += n;
  }
  return {};
}

Status RouteRecorder::Keep(bool starts_sequence) {
  const size_t layers = trace_.info().n_layer;
  std::vector<ExpertId> experts;
  std::vector<float> weights;
  std::vector<ExpertId> predicted;
  for (size_t first = 0; first < seen_.size(); first += layers) {
    const uint32_t n_tokens = seen_[first].routing.n_tokens;
    for (uint32_t t = 0; t < n_tokens; ++t) {
      experts.clear();
      weights.clear();
      predicted.clear();
      for (size_t l = 0; l < layers; ++l) {
        const Routing& routing = seen_[first + l].routing;
        experts.append_range(routing.experts_of(t));
        const std::span<const ExpertId> ahead = seen_[first + l].ahead;
        for (size_t at = t; at * routing.n_used < ahead.size(); at += n_tokens) {
          predicted.append_range(ahead.subspan(at * routing.n_used, routing.n_used));
        }
        if (trace_.info().has_weights) weights.append_range(routing.weights_of(t));
      }
      TRY_STATUS(trace_.Add({.phase = seen_[first].phase,
                             .starts_sequence = std::exchange(starts_sequence, false),
                             .experts = experts,
                             .weights = weights,
                             .predicted = predicted}));
    }
  }
  return {};
}

}  // namespace moestro
