// SPDX-License-Identifier: MIT
// EdgeMoE's keep-score: frequency x layers since the expert's layer ran, so that experts of layers
// that have just run leave first, and those of layers about to run stay. An encoder's experts have
// the frequency 0.
#include "decide/slots/policies/policies.h"
#include "decide/slots/policies/ranked_policy.h"

namespace moestro {
namespace {

class EdgeMoePolicy final : public RankedPolicy {
 public:
  SlotId Victim(const PinView& pins) const override {
    const uint32_t n = step_layers();
    return ranking_.Lowest(pins, [this, n](ExpertLayerId layer, double uses) {
      return uses * ((n - LayersAhead(layer)) % n);
    });
  }

 private:
  void Forget(const PolicyShape& shape) override { uses_.Reset(shape.layers, shape.experts); }
  double Used(ExpertKey key, uint32_t rows) override {
    return static_cast<double>(uses_[key] += rows);
  }

  ExpertTable<uint64_t> uses_;
};

}  // namespace

std::unique_ptr<Policy> MakeEdgeMoe(const PolicyValues& /*values*/) {
  return std::make_unique<EdgeMoePolicy>();
}

}  // namespace moestro
