// SPDX-License-Identifier: MIT
// Leases for a list of experts, taken in order as slots become free: a layer may need more experts
// than slots exist, as long as each lease ends after its use.
//
// Thread rule: engine thread only (see residency.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/ids.h"
#include "core/layer_plan.h"
#include "residency/residency.h"

namespace moestro {

class LeaseStream {
 public:
  LeaseStream() = default;  // empty
  LeaseStream(Residency& residency, const LayerPlan& plan) { Begin(residency, plan); }
  // A stream of experts that a prompt will use; the rows that use each are not known yet.
  LeaseStream(Residency& residency, std::span<const ExpertKey> keys, Urgency urgency);

  // Replaces the leases held by the plan's experts, in the plan's order and on demand, without
  // those computed on a device. Keeps the vectors' memory.
  void Begin(Residency& residency, const LayerPlan& plan);

  // Takes leases in order until there is no room or none is left to take.
  void Advance();
  bool all_taken() const { return next_ == wanted_.size(); }
  size_t taken() const { return next_; }  // leases taken so far, released ones included
  size_t size() const { return wanted_.size(); }
  // The lease of the i-th expert; nullptr before it is taken and after LetGo().
  const Lease* lease(size_t i) const { return leases_[i] ? &*leases_[i] : nullptr; }
  void LetGo(size_t i) { leases_[i].reset(); }
  // Releases all leases; the stream is empty afterwards.
  void LetAllGo();

 private:
  struct Wanted {
    ExpertKey key;
    Use use = Use::kPrefill;
    uint32_t rows = 1;
    bool is_staged = false;
  };

  Residency* residency_ = nullptr;
  std::vector<Wanted> wanted_;
  std::vector<std::optional<Lease>> leases_;
  size_t next_ = 0;
  Urgency urgency_ = Urgency::kDemand;
};

}  // namespace moestro
