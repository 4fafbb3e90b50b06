// SPDX-License-Identifier: MIT
#include "residency/lease_stream.h"

#include <utility>

namespace moestro {

LeaseStream::LeaseStream(Residency& residency, std::vector<ExpertKey> keys, Use use,
                         Urgency urgency)
    : residency_(&residency), keys_(std::move(keys)), use_(use), urgency_(urgency) {
  leases_.resize(keys_.size());
}

void LeaseStream::Advance() {
  while (next_ < keys_.size()) {
    std::optional<Lease> lease = residency_->TryAcquire(keys_[next_], use_, urgency_);
    if (!lease) return;
    leases_[next_].emplace(*std::move(lease));
    ++next_;
  }
}

}  // namespace moestro
