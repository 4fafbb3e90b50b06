// SPDX-License-Identifier: MIT
#include "forward/row_router.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace moestro {
namespace {

RouterSpec RouterOf(const ModelSpec& spec, const LittleStep& little) {
  RouterSpec router = spec.router;
  if (little.is_on()) router.n_used = little.n_used;
  return router;
}

// The rows' logits with the router's bias; `room` holds the sums if the router has a bias.
std::span<const float> WithBias(std::span<const float> logits, std::span<const float> bias,
                                std::vector<float>& room) {
  if (bias.empty()) return logits;
  room.assign(logits.begin(), logits.end());
  for (size_t i = 0; i < room.size(); ++i) room[i] += bias[i % bias.size()];
  return room;
}

}  // namespace

void RowRouter::Choose(ExpertLayerId layer, size_t n_rows, const LittleStep& little,
                       Routing& routing) {
  const RouterSpec& router = parts_.spec.router;
  uint32_t candidates = parts_.protocol.candidates();
  if (parts_.watchers.wants_candidates) candidates = CandidatesOf(router.n_expert, router.n_used);
  if (little.is_on()) candidates = std::max(candidates, router.n_used);
  const LayerForm& form = parts_.layers[layer.value];
  const std::span<const float> logits(parts_.buffers.router(), n_rows * router.n_expert);
  router_.Route(RouterOf(parts_.spec, little), WithBias(logits, form.router_bias, biased_),
                form.selection_bias, candidates, routing);
}

void RowRouter::DropOverCapacity(std::span<const StepRow> rows, Routing& routing) {
  if (parts_.capacity == 0 || !rows.front().is_source) return;
  taken_.clear();
  for (size_t row = 0; row < rows.size(); ++row) {
    for (size_t k = row * routing.n_used; k < (row + 1) * routing.n_used; ++k) {
      if (++taken_[{rows[row].sequence, routing.experts[k]}] > parts_.capacity) {
        routing.weights[k] = 0.0F;
      }
    }
  }
}

void RowRouter::Widen(ExpertLayerId layer, Routing& routing) {
  const uint32_t k = parts_.spec.router.n_used;
  widened_.resize(parts_.spec.n_expert_layers());
  std::vector<ExpertId>& widened = widened_[layer.value];
  widened.clear();
  for (size_t row = 0; row < routing.n_tokens; ++row) {
    widened.append_range(routing.candidates.row(row).experts.first(k));
  }
  if (parts_.protocol.candidates() == 0) routing.candidates.Clear(0);
}

void RowRouter::ChooseAhead(ExpertLayerId layer, size_t n_rows, uint32_t look_ahead,
                            const LittleStep& little, RoutedAhead& ahead) {
  const uint32_t layers = std::min(look_ahead, parts_.spec.n_expert_layers() - 1 - layer.value);
  const RouterSpec router = RouterOf(parts_.spec, little);
  const size_t logits = n_rows * router.n_expert;  // values of one layer
  ahead.experts.clear();
  ahead.weights.clear();
  for (uint32_t i = 0; i < layers; ++i) {
    const LayerForm& form = parts_.layers[layer.value + 1 + i];
    const std::span<const float> its(parts_.buffers.ahead() + i * logits, logits);
    router_.Route(router, WithBias(its, form.router_bias, biased_), form.selection_bias, 0,
                  of_later_);
    ahead.experts.append_range(of_later_.experts);
    ahead.weights.append_range(of_later_.weights);
  }
}

}  // namespace moestro
