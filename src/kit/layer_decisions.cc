// SPDX-License-Identifier: MIT
#include "kit/layer_decisions.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace moestro {
namespace {

double MeanOwnBytes(const ExpertCatalog& catalog) {
  uint64_t experts = 0;
  for (const PoolShape& pool : catalog.pools) experts += pool.is_low ? 0 : pool.experts;
  return experts > 0 ? static_cast<double>(catalog.total_bytes()) / static_cast<double>(experts)
                     : 0.0;
}

}  // namespace

Result<std::unique_ptr<LayerDecisions>> LayerDecisions::Create(const PredictorChoice& predictor,
                                                               ExpertSlots& slots,
                                                               const Rules& rules) {
  TRY(std::unique_ptr<Predictor> predicts, MakePredictor(predictor));
  std::unique_ptr<LayerDecisions> made(new LayerDecisions(slots.residency(), rules));
  const ExpertCatalog& catalog = slots.catalog();
  made->planner_.emplace(
      std::move(predicts),
      PredictorShape{.moe = slots.shape(), .depth = std::max(rules.look_ahead, 1U)},
      PrefetchLimits{.slots = {slots.slots().begin(), slots.slots().end()},
                     .pool_of = [&catalog](ExpertKey key) { return catalog.copy(key).pool; },
                     .reads_at_device = slots.queue().options().max_speculative,
                     .expert_bytes = MeanOwnBytes(catalog),
                     .is_fixed = rules.is_fixed},
      [&its = made->prefetched_](ExpertKey key) { return its.contains(key); });
  made->protocol_.emplace(*made->planner_, made->prefetched_, slots.shape().n_layer, rules.lossy);
  return made;
}

std::span<const PredictionScore> LayerDecisions::scores() const {
  if (rules_.look_ahead == 0) return {};
  return planner_->scores();
}

void LayerDecisions::BeginSequence() {
  residency_.BeginSequence();
  if (rules_.tier != nullptr) rules_.tier->BeginSequence();
  protocol_->BeginSequence();
}

}  // namespace moestro
