// SPDX-License-Identifier: MIT
// Residency for LayerProtocol: carries out prefetch requests at low priority and holds their leases
// until the protocol ends them. An expert that a device holds counts as present and is not read
// ahead.
//
// Thread rule: engine thread only.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/ids.h"
#include "decide/devices/device_tier.h"
#include "decide/layer/layer_protocol.h"
#include "residency/residency.h"

namespace moestro {

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
