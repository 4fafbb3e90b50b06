// SPDX-License-Identifier: MIT
// EdgeMoE's activation paths. Layers further ahead follow from those guessed in between, as if
// their routers had chosen so.
#include <utility>
#include <vector>

#include "base/check.h"
#include "decide/predictors/predictors.h"

namespace moestro {
namespace {

class Paths final : public Predictor {
 public:
  explicit Paths(std::shared_ptr<const PathTable> table) : table_(std::move(table)) {}

  void Reset(const PredictorShape& shape) override {
    CHECK((PathShape{.layers = shape.layers, .experts = shape.experts, .used = shape.used} ==
           table_->shape()));
    known_.clear();
    observed_ = 0;
  }

  void Observe(const Seen& seen) override {
    layer_ = seen.layer.value;
    known_.resize(layer_ == 0 ? 0 : observed_);  // without guesses
    if (known_.size() == 2) known_.erase(known_.begin());
    known_.emplace_back(seen.chosen.begin(), seen.chosen.end());
    observed_ = known_.size();
  }

  std::span<const ExpertId> Predict(uint32_t distance) override {
    if (observed_ == 0) return {};
    while (known_.size() < observed_ + distance) {
      std::vector<ExpertId> best(table_->shape().used);
      const std::span<const ExpertId> last = known_.back();
      const std::span<const ExpertId> earlier =
          known_.size() < 2 ? std::span<const ExpertId>() : known_[known_.size() - 2];
      table_->Rank(layer_ + 1 + known_.size() - observed_, last, earlier, best, scores_);
      known_.push_back(std::move(best));
    }
    return known_[observed_ + distance - 1];
  }

 private:
  std::shared_ptr<const PathTable> table_;
  size_t layer_ = 0;                          // the last one observed
  size_t observed_ = 0;                       // rows of known_ that were observed, at most 2
  std::vector<std::vector<ExpertId>> known_;  // experts of layers in a row: observed, then guessed
  std::vector<float> scores_;
};

}  // namespace

std::unique_ptr<Predictor> MakePaths(std::shared_ptr<const PathTable> table) {
  return std::make_unique<Paths>(std::move(table));
}

}  // namespace moestro
