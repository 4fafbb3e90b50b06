// SPDX-License-Identifier: MIT
// Frequency weighted by recency: every use counts 1 and loses half of it every `half_life` tokens.
#include <cmath>

#include "decide/slots/policies/policies.h"
#include "decide/slots/policies/ranked_policy.h"

namespace moestro {
namespace {

class LfruPolicy final : public RankedPolicy {
 public:
  explicit LfruPolicy(double half_life) : half_life_(half_life) {}

  void LayerBegun(ExpertLayerId layer) override {
    RankedPolicy::LayerBegun(layer);
    if (BeginsStep(layer)) ++token_;
  }
  SlotId Victim(const PinView& pins) const override {
    return ranking_.Lowest(pins, [](ExpertLayerId, double weight) { return weight; });
  }

 private:
  void Forget(const PolicyShape& shape) override {
    log_weight_.Reset(shape.layers, shape.experts);
    for (double& weight : log_weight_.all()) weight = -HUGE_VAL;
    token_ = 0;
  }
  // All weights decay alike, so their order does not: the sum of 2^(token / half_life) over the
  // uses, as a logarithm because it grows without end.
  double Used(ExpertKey key, uint32_t rows) override {
    double& weight = log_weight_[key];
    const double use = static_cast<double>(token_) / half_life_;
    weight = use + std::log2(rows + std::exp2(weight - use));
    return weight;
  }

  double half_life_;
  ExpertTable<double> log_weight_;
  uint64_t token_ = 0;
};

}  // namespace

std::unique_ptr<Policy> MakeLfru(const PolicyValues& values) {
  return std::make_unique<LfruPolicy>(values.find("half_life")->second);
}

}  // namespace moestro
