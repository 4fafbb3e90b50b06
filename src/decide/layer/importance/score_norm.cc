// SPDX-License-Identifier: MIT
// Weight times the mean length of the expert's output, for models whose experts differ in length.
#include <cstddef>
#include <utility>

#include "decide/layer/importance/importances.h"

namespace moestro {
namespace {

class ScoreNormImportance final : public Importance {
 public:
  explicit ScoreNormImportance(std::shared_ptr<const ExpertNorms> norms)
      : norms_(std::move(norms)) {}

  void Contributions(ExpertLayerId layer, std::span<const ExpertId> experts,
                     std::span<const float> weights, std::span<float> out) const override {
    for (size_t k = 0; k < experts.size(); ++k) out[k] = weights[k] * norms_->of(layer, experts[k]);
  }

 private:
  std::shared_ptr<const ExpertNorms> norms_;
};

}  // namespace

std::unique_ptr<Importance> MakeScoreNormImportance(std::shared_ptr<const ExpertNorms> norms) {
  return std::make_unique<ScoreNormImportance>(std::move(norms));
}

}  // namespace moestro
