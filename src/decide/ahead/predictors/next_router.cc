// SPDX-License-Identifier: MIT
// HOBBIT's look-ahead: a layer's router input changes little from layer to layer, so the next
// layers' routers, evaluated on this layer's input, choose nearly what they will choose.
#include <memory>
#include <span>
#include <vector>

#include "decide/ahead/predictors/expert_union.h"
#include "decide/ahead/predictors/predictors.h"

namespace moestro {
namespace {

class NextRouterPredictor final : public Predictor {
 public:
  void Reset(const PredictorShape& shape) override {
    union_.Reset(shape.moe.n_expert);
    ahead_.clear();
  }
  void Observe(const Seen& seen) override {
    rows_ = seen.rows;
    used_ = static_cast<uint32_t>(seen.chosen.size()) / rows_;
    ahead_.assign(seen.ahead.begin(), seen.ahead.end());
  }
  std::span<const ExpertId> Predict(uint32_t distance) override {
    const size_t row_block = size_t{rows_} * used_;
    if (ahead_.size() < distance * row_block) return {};
    return union_.ByRank(std::span(ahead_).subspan((distance - 1) * row_block, row_block), used_);
  }
  bool wants_ahead() const override { return true; }

 private:
  uint32_t used_ = 1;  // experts of a row of the step
  uint32_t rows_ = 1;
  std::vector<ExpertId> ahead_;  // [distance - 1][row][K]
  ExpertUnion union_;
};

}  // namespace

std::unique_ptr<Predictor> MakeNextRouter() { return std::make_unique<NextRouterPredictor>(); }

}  // namespace moestro
