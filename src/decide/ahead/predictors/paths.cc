// SPDX-License-Identifier: MIT
// EdgeMoE's activation paths. Layers further ahead follow from those predicted in between, as if
// their routers had chosen so.
#include <utility>
#include <vector>

#include "base/check.h"
#include "decide/ahead/predictors/expert_union.h"
#include "decide/ahead/predictors/predictors.h"

namespace moestro {
namespace {

class Paths final : public Predictor {
 public:
  explicit Paths(std::shared_ptr<const PathTable> table) : table_(std::move(table)) {}

  void Reset(const PredictorShape& shape) override {
    CHECK(shape.moe.is_as_large_as(table_->shape()));
    first_ = shape.moe.n_encoder;
    union_.Reset(shape.moe.n_expert);
    known_.clear();
    observed_ = 0;
  }

  void Observe(const Seen& seen) override {
    layer_ = seen.layer.value;
    known_.resize(layer_ == first_ ? 0 : observed_);  // without predictions
    if (known_.size() == 2) known_.erase(known_.begin());
    known_.emplace_back(seen.chosen.begin(), seen.chosen.end());
    observed_ = known_.size();
  }

  std::span<const ExpertId> Predict(uint32_t distance) override {
    if (observed_ == 0) return {};
    while (known_.size() < observed_ + distance) known_.push_back(NextLayer());
    return union_.ByRank(known_[observed_ + distance - 1], table_->shape().n_used);
  }

 private:
  // Experts that most likely follow the last layers of known_: [row][K].
  std::vector<ExpertId> NextLayer() {
    const size_t used = table_->shape().n_used;
    const std::span<const ExpertId> last = known_.back();
    const std::span<const ExpertId> earlier =
        known_.size() < 2 ? std::span<const ExpertId>() : known_[known_.size() - 2];
    std::vector<ExpertId> best(last.size());
    for (size_t at = 0; at < last.size(); at += used) {
      table_->Rank(layer_ + 1 + known_.size() - observed_, last.subspan(at, used),
                   earlier.empty() ? earlier : earlier.subspan(at, used),
                   std::span(best).subspan(at, used), scores_);
    }
    return best;
  }

  std::shared_ptr<const PathTable> table_;
  size_t first_ = 0;     // of a decode step
  size_t layer_ = 0;     // the last one observed
  size_t observed_ = 0;  // entries of known_ that were observed, at most 2
  // Experts of layers in a row, [row][K] each: observed, then predicted.
  std::vector<std::vector<ExpertId>> known_;
  std::vector<float> scores_;
  ExpertUnion union_;
};

}  // namespace

std::unique_ptr<Predictor> MakePaths(std::shared_ptr<const PathTable> table) {
  return std::make_unique<Paths>(std::move(table));
}

}  // namespace moestro
