// SPDX-License-Identifier: MIT
// The baseline: predicts for a layer the experts that it has lately used most.
#include <algorithm>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "decide/ahead/predictors/predictors.h"

namespace moestro {
namespace {

class FrequencyPredictor final : public Predictor {
 public:
  void Reset(const PredictorShape& shape) override {
    shape_ = shape.moe;
    counts_.assign(size_t{shape.moe.n_layer} * shape.moe.n_expert, 0.0);
    order_.resize(shape.moe.n_expert);
    layer_ = 0;
  }
  void Observe(const Seen& seen) override {
    layer_ = seen.layer.value;
    rows_ = seen.rows;
    for (double& count : of(layer_)) count *= kKeep;
    for (const ExpertId expert : seen.chosen) of(layer_)[expert.value] += 1.0;
  }
  std::span<const ExpertId> Predict(uint32_t distance) override {
    const std::span<const double> counts = of(layer_ + distance);
    std::iota(order_.begin(), order_.end(), uint16_t{0});
    const uint32_t most = std::min(shape_.n_expert, shape_.n_used * rows_);
    std::ranges::partial_sort(order_, order_.begin() + most, [&](uint16_t a, uint16_t b) {
      return counts[a] != counts[b] ? counts[a] > counts[b] : a < b;
    });
    predicted_.clear();
    for (size_t i = 0; i < most && counts[order_[i]] > 0.0; ++i) {
      predicted_.push_back(ExpertId{order_[i]});
    }
    return predicted_;
  }

 private:
  // Share of a count that is left after a step: half after 17 steps.
  static constexpr double kKeep = 0.96;

  std::span<double> of(size_t layer) {
    return std::span(counts_).subspan(layer * shape_.n_expert, shape_.n_expert);
  }
  MoeShape shape_;
  std::vector<double> counts_;  // [layer][expert]
  std::vector<uint16_t> order_;
  std::vector<ExpertId> predicted_;
  size_t layer_ = 0;
  uint32_t rows_ = 1;
};

}  // namespace

std::unique_ptr<Predictor> MakeFrequency() { return std::make_unique<FrequencyPredictor>(); }

}  // namespace moestro
