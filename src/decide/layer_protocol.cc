// SPDX-License-Identifier: MIT
#include "decide/layer_protocol.h"

#include <algorithm>

#include "base/check.h"

namespace moestro {

LayerProtocol::LayerProtocol(PrefetchPlanner& planner, ExpertHolder& holder, uint32_t layers)
    : planner_(planner), holder_(holder), held_(layers) {}

LayerPlan LayerProtocol::AfterRouting(const Routed& routed) {
  layer_ = routed.layer.value;
  decodes_ = std::ranges::contains(routed.kinds, RowKind::kDecode);
  if (decodes_) holder_.BeginLayer(routed.layer);
  // What was prefetched for this layer and is not needed frees its slot before the layer's own
  // requests come.
  std::erase_if(held_[layer_], [&](ExpertKey key) {
    if (std::ranges::contains(routed.routing.experts, key.expert)) return false;
    holder_.Withdraw(key);
    return true;
  });
  if (decodes_) Learn(routed);
  return PlanLayer(routed.layer, routed.routing, routed.kinds,
                   [this](ExpertKey key) { return holder_.contains(key); });
}

// Predictors and policies hear of decode rows only.
void LayerProtocol::Learn(const Routed& routed) {
  const uint32_t used = routed.routing.n_used;
  const size_t rows = routed.kinds.size();
  CHECK(rows > 0 && used > 0);
  chosen_.clear();
  predicted_.clear();
  const auto take = [&](std::span<const ExpertId> from, size_t row, std::vector<ExpertId>& to) {
    if (routed.kinds[row % rows] == RowKind::kDecode) {
      to.append_range(from.subspan(row * used, used));
    }
  };
  for (size_t r = 0; r < rows; ++r) take(routed.routing.experts, r, chosen_);
  for (size_t r = 0; r * used < routed.predicted.size(); ++r) take(routed.predicted, r, predicted_);
  planner_.Observe({.layer = routed.layer,
                    .rows = static_cast<uint32_t>(chosen_.size() / used),
                    .chosen = chosen_,
                    .ahead = predicted_});
  planner_.ForEachPrediction([this](LayerId later, std::span<const ExpertId> experts) {
    holder_.Predict(later, experts);
  });
}

void LayerProtocol::Prefetch() {
  for (const ExpertKey key : held_[layer_]) holder_.Release(key);
  held_[layer_].clear();
  if (!decodes_) return;
  size_t unfinished = 0;
  for (const std::vector<ExpertKey>& keys : held_) {
    unfinished += static_cast<size_t>(
        std::ranges::count_if(keys, [this](ExpertKey key) { return !holder_.is_complete(key); }));
  }
  for (const PrefetchRequest& request : planner_.Requests(unfinished)) {
    if (holder_.Prefetch(request.key)) held_[request.key.layer.value].push_back(request.key);
  }
}

void LayerProtocol::Clear() {
  for (std::vector<ExpertKey>& keys : held_) {
    for (const ExpertKey key : keys) holder_.Withdraw(key);
    keys.clear();
  }
  planner_.Clear();
}

}  // namespace moestro
