// SPDX-License-Identifier: MIT
#include "residency/prefetcher.h"

#include <algorithm>
#include <utility>

namespace moestro {

Prefetcher::Prefetcher(PrefetchPlanner& planner, Residency& residency, uint32_t layers)
    : planner_(&planner), residency_(&residency), held_(layers) {}

void Prefetcher::RouterSpoke(const Predictor::Seen& seen) {
  layer_ = seen.layer.value;
  std::vector<Lease>& held = held_[layer_];
  const auto wrong = std::ranges::partition(held, [&](const Lease& lease) {
    return std::ranges::find(seen.chosen, lease.key().expert) != seen.chosen.end();
  });
  for (Lease& lease : wrong) residency_->Withdraw(std::move(lease));
  held.erase(wrong.begin(), wrong.end());
  planner_->Observe(seen);
  planner_->ForEachPrediction([this](LayerId layer, std::span<const ExpertId> experts) {
    residency_->Predict(layer, experts);
  });
}

void Prefetcher::LookAhead() {
  held_[layer_].clear();
  size_t unfinished = 0;
  for (const std::vector<Lease>& layer : held_) {
    unfinished += static_cast<size_t>(
        std::ranges::count_if(layer, [](const Lease& lease) { return !lease.is_complete(); }));
  }
  for (const PrefetchWish& wish : planner_->Wishes(unfinished)) {
    std::optional<Lease> lease =
        residency_->TryAcquire(wish.key, Use::kGuess, Urgency::kSpeculative);
    if (lease) held_[wish.key.layer.value].push_back(*std::move(lease));
  }
}

void Prefetcher::Clear() {
  for (std::vector<Lease>& layer : held_) {
    for (Lease& lease : layer) residency_->Withdraw(std::move(lease));
    layer.clear();
  }
  planner_->Clear();
}

}  // namespace moestro
