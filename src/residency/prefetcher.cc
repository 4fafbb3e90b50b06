// SPDX-License-Identifier: MIT
#include "residency/prefetcher.h"

#include <algorithm>
#include <utility>

namespace moestro {

Prefetcher::Prefetcher(PrefetchPlanner& planner, Residency& residency, uint32_t layers,
                       Limits limits)
    : planner_(&planner), residency_(&residency), limits_(limits), held_(layers) {}

void Prefetcher::RouterSpoke(const Predictor::Seen& seen) {
  layer_ = seen.layer.value;
  std::vector<Lease>& held = held_[layer_];
  const auto wrong = std::ranges::partition(held, [&](const Lease& lease) {
    return std::ranges::find(seen.chosen, lease.key().expert) != seen.chosen.end();
  });
  for (Lease& lease : wrong) residency_->Withdraw(std::move(lease));
  n_held_ -= wrong.size();
  held.erase(wrong.begin(), wrong.end());
  planner_->Observe(seen);
}

void Prefetcher::LookAhead() {
  n_held_ -= held_[layer_].size();
  held_[layer_].clear();
  size_t fetched = 0;
  for (const std::vector<Lease>& layer : held_) {
    fetched += static_cast<size_t>(
        std::ranges::count_if(layer, [](const Lease& lease) { return !lease.is_complete(); }));
  }
  for (const PrefetchWish& wish : planner_->Wishes()) {
    if (n_held_ >= limits_.most_held) return;
    if (is_held(wish.key)) continue;
    if (!wish.is_present && fetched >= limits_.most_fetched) continue;
    std::optional<Lease> lease =
        residency_->TryAcquire(wish.key, Use::kGuess, Urgency::kSpeculative);
    if (!lease) return;
    fetched += wish.is_present ? 0 : 1;
    held_[wish.key.layer.value].push_back(*std::move(lease));
    ++n_held_;
  }
}

bool Prefetcher::is_held(ExpertKey key) const {
  const std::vector<Lease>& layer = held_[key.layer.value];
  return std::ranges::any_of(layer, [&](const Lease& lease) { return lease.key() == key; });
}

void Prefetcher::Clear() {
  for (std::vector<Lease>& layer : held_) {
    for (Lease& lease : layer) residency_->Withdraw(std::move(lease));
    layer.clear();
  }
  n_held_ = 0;
}

}  // namespace moestro
