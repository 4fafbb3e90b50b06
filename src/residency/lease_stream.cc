// SPDX-License-Identifier: MIT
#include "residency/lease_stream.h"

#include <utility>

namespace moestro {

LeaseStream::LeaseStream(Residency& residency, const LayerPlan& plan) : residency_(&residency) {
  wanted_.reserve(plan.experts.size());
  for (const PlannedExpert& expert : plan.experts) {
    if (expert.place == Place::kDevice) break;  // they come last
    wanted_.push_back({.key = expert.key,
                       .use = expert.use,
                       .rows = expert.n_pairs,
                       .is_staged = expert.is_staged});
  }
  leases_.resize(wanted_.size());
}

LeaseStream::LeaseStream(Residency& residency, std::span<const ExpertKey> keys, Urgency urgency)
    : residency_(&residency), leases_(keys.size()), urgency_(urgency) {
  wanted_.reserve(keys.size());
  for (const ExpertKey key : keys) wanted_.push_back({.key = key, .rows = 0});
}

void LeaseStream::Advance() {
  for (; next_ < wanted_.size(); ++next_) {
    const Wanted& w = wanted_[next_];
    std::optional<Lease> lease = w.is_staged
                                     ? residency_->TryStage(w.key, w.use, w.rows)
                                     : residency_->TryAcquire(w.key, w.use, urgency_, w.rows);
    if (!lease) return;
    leases_[next_].emplace(*std::move(lease));
  }
}

}  // namespace moestro
