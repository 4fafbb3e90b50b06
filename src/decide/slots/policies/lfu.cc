// SPDX-License-Identifier: MIT
// Least frequently used, counted over everything since the model was loaded (lfu) or since the
// sequence began (lfu-seq; HOBBIT found that a sequence's own counts hit more).
#include "decide/slots/policies/policies.h"
#include "decide/slots/policies/ranked_policy.h"

namespace moestro {
namespace {

class LfuPolicy final : public RankedPolicy {
 public:
  explicit LfuPolicy(bool is_per_sequence) : is_per_sequence_(is_per_sequence) {}

  void SequenceBegun() override {
    if (!is_per_sequence_) return;
    for (uint64_t& uses : uses_.all()) uses = 0;
    ClearRanks();
  }
  SlotId Victim(const PinView& pins) const override {
    return ranking_.Lowest(pins, [](ExpertLayerId, double uses) { return uses; });
  }

 private:
  void Forget(const PolicyShape& shape) override { uses_.Reset(shape.layers, shape.experts); }
  double Used(ExpertKey key, uint32_t rows) override {
    return static_cast<double>(uses_[key] += rows);
  }

  bool is_per_sequence_;
  ExpertTable<uint64_t> uses_;
};

}  // namespace

std::unique_ptr<Policy> MakeLfu(const PolicyValues& /*values*/) {
  return std::make_unique<LfuPolicy>(false);
}
std::unique_ptr<Policy> MakeLfuSeq(const PolicyValues& /*values*/) {
  return std::make_unique<LfuPolicy>(true);
}

}  // namespace moestro
