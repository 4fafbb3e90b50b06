// SPDX-License-Identifier: MIT
#include "residency/prefetched_experts.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"

namespace moestro {

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
