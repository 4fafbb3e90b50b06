// SPDX-License-Identifier: MIT
// HOBBIT's measure: the router's weight stands for the length of the weighted output.
#include <algorithm>

#include "decide/layer/importance/importances.h"

namespace moestro {
namespace {

class ScoreImportance final : public Importance {
 public:
  void Contributions(ExpertLayerId /*layer*/, std::span<const ExpertId> /*experts*/,
                     std::span<const float> weights, std::span<float> out) const override {
    std::ranges::copy(weights, out.begin());
  }
};

}  // namespace

std::unique_ptr<Importance> MakeScoreImportance() { return std::make_unique<ScoreImportance>(); }

}  // namespace moestro
