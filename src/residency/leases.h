// SPDX-License-Identifier: MIT
// Leases for what is to come: a layer's experts in order, and prefetched ones.
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
#include "decide/devices/device_tier.h"
#include "decide/layer/layer_protocol.h"
#include "residency/residency.h"

namespace moestro {

// Leases for a list of experts, taken in order as slots become free: a layer may need more experts
// than slots exist, as long as each lease ends after its use.

class LeaseStream {
 public:
  LeaseStream() = default;  // empty
  LeaseStream(Residency& residency, const LayerPlan& plan) { Begin(residency, plan); }
  // A stream of experts that rows will use; how many use each is not known yet.
  LeaseStream(Residency& residency, std::span<const ExpertKey> keys, Urgency urgency,
              Use use = Use::kPrefill);

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

// Residency for LayerProtocol: carries out prefetch requests at low priority and holds their leases
// until the protocol ends them. An expert that a device holds counts as present and is not read
// ahead.
//
// Thread rule: engine thread only.

class PrefetchedExperts final : public ExpertHolder {
 public:
  // Both must outlive this; `device` may be null.
  PrefetchedExperts(Residency& residency, DeviceTier* device)
      : residency_(residency), device_(device) {}

  bool contains(ExpertKey key) const override {
    return residency_.contains(key) || (device_ != nullptr && device_->contains(key));
  }
  void BeginLayer(ExpertLayerId layer) override {
    residency_.BeginLayer(layer);
    if (device_ != nullptr) device_->BeginLayer(layer);
  }
  void Predict(ExpertLayerId layer, std::span<const ExpertId> experts) override {
    residency_.Predict(layer, experts);
    if (device_ != nullptr) device_->Predict(layer, experts);
  }
  void LearnPrompt(const LayerPlan& plan) override { residency_.LearnPrompt(plan); }
  bool Prefetch(ExpertKey key) override;
  void Withdraw(ExpertKey key) override;
  void Release(ExpertKey key) override;
  bool is_complete(ExpertKey key) const override;

 private:
  std::vector<Lease>::iterator Find(ExpertKey key);

  Residency& residency_;
  DeviceTier* device_;
  std::vector<Lease> leases_;  // a handful
};

}  // namespace moestro
