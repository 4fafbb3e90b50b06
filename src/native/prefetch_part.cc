// SPDX-License-Identifier: MIT
#include "native/prefetch_part.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "decide/ahead/predictor.h"

namespace moestro {
namespace {

double MeanOwnBytes(const ExpertCatalog& catalog) {
  uint64_t experts = 0;
  for (const PoolShape& pool : catalog.pools) experts += pool.is_low ? 0 : pool.experts;
  return experts > 0 ? static_cast<double>(catalog.total_bytes()) / static_cast<double>(experts)
                     : 0.0;
}

}  // namespace

Result<std::unique_ptr<PrefetchPart>> PrefetchPart::Create(const OpenedModel& opened,
                                                           SlotPart& slots, DeviceTier* tier,
                                                           const LossyParts& lossy, bool is_fixed) {
  TRY(std::unique_ptr<Predictor> predictor, MakePredictor(opened.predictor));
  std::unique_ptr<PrefetchPart> part(new PrefetchPart());
  const PredictorShape shape{.moe = opened.model.id.shape,
                             .depth = std::max(opened.plan.look_ahead, 1U)};
  part->planner_.emplace(
      std::move(predictor), shape,
      PrefetchLimits{
          .slots = {slots.slots().begin(), slots.slots().end()},
          .pool_of = [&catalog = opened.catalog](ExpertKey key) { return catalog.copy(key).pool; },
          .reads_at_device = slots.queue().options().max_speculative,
          .expert_bytes = MeanOwnBytes(opened.catalog),
          .is_fixed = is_fixed},
      [its = part.get()](ExpertKey key) { return its->prefetched_->contains(key); });
  part->prefetched_.emplace(slots.residency(), tier);
  part->protocol_.emplace(*part->planner_, *part->prefetched_, opened.model.spec.n_expert_layers(),
                          lossy);
  return part;
}

}  // namespace moestro
