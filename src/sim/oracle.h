// SPDX-License-Identifier: MIT
// A predictor that is always right, since it reads the trace ahead: the limit for other predictors.
// Only the simulator has it.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "decide/ahead/predictor.h"
#include "decide/ahead/predictors/expert_union.h"
#include "trace/trace.h"

namespace moestro {

// Observe() steps through the decode tokens of a trace in order. The trace must outlive this.
class OraclePredictor final : public Predictor {
 public:
  explicit OraclePredictor(const Trace& trace) : trace_(trace) {}

  void Reset(const PredictorShape& shape) override {
    next_ = 0;
    union_.Reset(shape.moe.n_expert);
  }
  void Observe(const Seen& seen) override {
    layer_ = seen.layer.value;
    if (layer_ > trace_.info().shape().n_encoder) return;
    tokens_.clear();
    while (tokens_.size() < seen.rows) {
      if (trace_.phase(next_) == Phase::kDecode) tokens_.push_back(next_);
      ++next_;
    }
  }
  std::span<const ExpertId> Predict(uint32_t distance) override {
    rows_.clear();
    for (const size_t token : tokens_) {
      rows_.append_range(trace_.experts(token, layer_ + distance));
    }
    return union_.ByRank(rows_, trace_.info().shape().n_used);
  }

 private:
  const Trace& trace_;
  size_t next_ = 0;             // the search for the next decode token begins here
  std::vector<size_t> tokens_;  // decode tokens of the step
  size_t layer_ = 0;
  std::vector<ExpertId> rows_;  // scratch: [row][K]
  ExpertUnion union_;           // scratch
};

}  // namespace moestro
