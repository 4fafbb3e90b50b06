// SPDX-License-Identifier: MIT
#include "residency/leases.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/result.h"

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

LeaseStream::LeaseStream(Residency& residency, std::span<const ExpertKey> keys, Urgency urgency,
                         Use use)
    : residency_(&residency), leases_(keys.size()), urgency_(urgency) {
  wanted_.reserve(keys.size());
  for (const ExpertKey key : keys) wanted_.push_back({.key = key, .use = use, .rows = 0});
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

bool PrefetchedExperts::Prefetch(ExpertKey key) {
  // An expert that the device holds is not read into memory.
  if (device_ != nullptr && device_->contains(key) && !residency_.contains(key)) return false;
  std::optional<Lease> lease = residency_.TryAcquire(key, Use::kPrefetch, Urgency::kSpeculative);
  if (!lease) return false;
  leases_.push_back(*std::move(lease));
  return true;
}

void PrefetchedExperts::Withdraw(ExpertKey key) {
  const auto lease = Find(key);
  residency_.Withdraw(std::move(*lease));
  leases_.erase(lease);
}

void PrefetchedExperts::Release(ExpertKey key) { leases_.erase(Find(key)); }

bool PrefetchedExperts::is_complete(ExpertKey key) const {
  return std::ranges::find(leases_, key, &Lease::key)->is_complete();
}

std::vector<Lease>::iterator PrefetchedExperts::Find(ExpertKey key) {
  const auto lease = std::ranges::find(leases_, key, &Lease::key);
  CHECK(lease != leases_.end());
  return lease;
}

}  // namespace moestro
