// SPDX-License-Identifier: MIT
// Leases for a list of experts, taken in order as slots become free: a layer may need more experts
// than there are slots, as long as they are let go after use.
//
// Thread rule: engine thread only (see residency.h).
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "core/ids.h"
#include "decide/slot_table.h"
#include "residency/residency.h"

namespace moestro {

class LeaseStream {
 public:
  LeaseStream() = default;  // of nothing
  LeaseStream(Residency& residency, std::vector<ExpertKey> keys, Use use, Urgency urgency);

  // Takes leases in order until there is no room or none is left to take.
  void Advance();
  bool all_taken() const { return next_ == keys_.size(); }
  size_t taken() const { return next_; }  // so far, those let go included
  size_t size() const { return keys_.size(); }
  // Of keys[i]; nullptr while it is not taken yet or already let go.
  const Lease* lease(size_t i) const { return leases_[i] ? &*leases_[i] : nullptr; }
  void LetGo(size_t i) { leases_[i].reset(); }

 private:
  Residency* residency_ = nullptr;
  std::vector<ExpertKey> keys_;
  std::vector<std::optional<Lease>> leases_;
  size_t next_ = 0;
  Use use_ = Use::kDecode;
  Urgency urgency_ = Urgency::kDemand;
};

}  // namespace moestro
