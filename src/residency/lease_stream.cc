// SPDX-License-Identifier: MIT
#include "residency/lease_stream.h"

#include <utility>

namespace moestro {

void LeaseStream::LetAllGo() {
  leases_.clear();
  wanted_.clear();
  next_ = 0;
}

void LeaseStream::Begin(Residency& residency, const LayerPlan& plan) {
  LetAllGo();
  residency_ = &residency;
  urgency_ = Urgency::kDemand;
  for (const PlannedExpert& expert : plan.experts) {
    if (expert.place == Place::kDevice) break;  // devices' experts come last
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
