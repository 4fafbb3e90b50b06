// SPDX-License-Identifier: MIT
// HOBBIT's look-ahead: a layer's router input changes little from layer to layer, so the next
// layers' routers, evaluated on this layer's input, choose nearly what they will choose.
#include <memory>
#include <span>
#include <vector>

#include "decide/predictors/predictors.h"

namespace moestro {
namespace {

class StackedPredictor final : public Predictor {
 public:
  void Reset(const PredictorShape& shape) override {
    used_ = shape.used;
    rows_.clear();
  }
  void Observe(const Seen& seen) override { rows_.assign(seen.ahead.begin(), seen.ahead.end()); }
  std::span<const ExpertId> Predict(uint32_t distance) override {
    const size_t end = size_t{distance} * used_;
    if (rows_.size() < end) return {};
    return std::span(rows_).subspan(end - used_, used_);
  }
  bool wants_ahead() const override { return true; }

 private:
  size_t used_ = 1;
  std::vector<ExpertId> rows_;  // [distance - 1][K]
};

}  // namespace

std::unique_ptr<Predictor> MakeStacked() { return std::make_unique<StackedPredictor>(); }

}  // namespace moestro
