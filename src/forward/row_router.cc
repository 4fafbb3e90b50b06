// SPDX-License-Identifier: MIT
#include "forward/row_router.h"

#include <algorithm>

#include "decide/layer/router.h"

namespace moestro {
namespace {

RouterSpec RouterOf(const ModelSpec& spec, const LittleStep& little) {
  RouterSpec router = spec.router;
  if (little.is_on()) router.n_used = little.n_used;
  return router;
}

}  // namespace

Routing RowRouter::Choose(ExpertLayerId layer, size_t n_rows, const LittleStep& little) const {
  const RouterSpec& router = parts_.spec.router;
  uint32_t candidates = parts_.protocol.candidates();
  if (parts_.watchers.wants_candidates) candidates = CandidatesOf(router.n_expert, router.n_used);
  if (little.is_on()) candidates = std::max(candidates, router.n_used);
  return Route(RouterOf(parts_.spec, little), {parts_.buffers.router(), n_rows * router.n_expert},
               parts_.layers[layer.value].selection_bias, candidates);
}

void RowRouter::Widen(ExpertLayerId layer, Routing& routing) {
  const uint32_t k = parts_.spec.router.n_used;
  widened_.resize(parts_.spec.n_expert_layers());
  std::vector<ExpertId>& widened = widened_[layer.value];
  widened.clear();
  for (size_t row = 0; row < routing.n_tokens; ++row) {
    widened.append_range(routing.candidates.row(row).experts.first(k));
  }
  if (parts_.protocol.candidates() == 0) routing.candidates = {};
}

RoutedAhead RowRouter::ChooseAhead(ExpertLayerId layer, size_t n_rows, uint32_t look_ahead,
                                   const LittleStep& little) const {
  const uint32_t layers = std::min(look_ahead, parts_.spec.n_expert_layers() - 1 - layer.value);
  const RouterSpec router = RouterOf(parts_.spec, little);
  const size_t logits = n_rows * router.n_expert;  // of one layer
  RoutedAhead ahead;
  for (uint32_t i = 0; i < layers; ++i) {
    const Routing routing = Route(router, {parts_.buffers.ahead() + i * logits, logits},
                                  parts_.layers[layer.value + 1 + i].selection_bias);
    ahead.experts.append_range(routing.experts);
    ahead.weights.append_range(routing.weights);
  }
  return ahead;
}

}  // namespace moestro
