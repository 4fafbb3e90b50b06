// SPDX-License-Identifier: MIT
#include "decide/layer/upgrades.h"

namespace moestro {

std::optional<ExpertKey> Upgrades::Next(const LayerPlan& plan) {
  if (plan.layer.value == shape_.n_encoder) {
    ++step_;
    in_step_ = 0;
  }
  std::optional<ExpertKey> best;
  for (const PlannedExpert& expert : plan.experts) {
    if (expert.use != Use::kDecode || expert.key.copy != kLowCopy) continue;
    uint64_t& seen =
        seen_[size_t{expert.key.layer.value} * shape_.n_expert + expert.key.expert.value];
    const bool is_again = seen > 0 && step_ - seen <= kWindow;
    if (is_again && !best && in_step_ < kMostPerStep) {
      best = ExpertKey{.layer = expert.key.layer, .expert = expert.key.expert};
      ++in_step_;
      seen = 0;
    } else {
      seen = step_;
    }
  }
  return best;
}

}  // namespace moestro
