// SPDX-License-Identifier: MIT
// Farthest layer distance: the layer that runs again last gives up its least recently used expert.
#include "decide/slots/policies/policies.h"
#include "decide/slots/policies/ranked_policy.h"

namespace moestro {
namespace {

class FldPolicy final : public RankedPolicy {
 public:
  SlotId Victim(const PinView& pins) const override {
    return ranking_.Lowest(pins, [this](ExpertLayerId layer, double) {
      return -static_cast<double>(LayersUntil(layer));
    });
  }

 private:
  void Forget(const PolicyShape& /*shape*/) override {}
  double Used(ExpertKey /*key*/, uint32_t /*rows*/) override {
    return 0.0;
  }  // ties leave oldest first
};

}  // namespace

std::unique_ptr<Policy> MakeFld(const PolicyValues& /*values*/) {
  return std::make_unique<FldPolicy>();
}

}  // namespace moestro
