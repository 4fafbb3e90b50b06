// SPDX-License-Identifier: MIT
// A predictor that is always right: it knows the trace, so it is the limit that predictors are
// measured against, and lives in the simulator only.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "decide/ahead/predictor.h"
#include "trace/trace.h"

namespace moestro {

// The decode tokens of a trace, in order, are what Observe() steps through. The trace must outlive
// this.
class OraclePredictor final : public Predictor {
 public:
  explicit OraclePredictor(const Trace& trace) : trace_(trace) {}

  void Reset(const PredictorShape& /*shape*/) override { next_ = 0; }
  void Observe(const Seen& seen) override {
    layer_ = seen.layer.value;
    if (layer_ > 0) return;
    while (trace_.phase(next_) != Phase::kDecode) ++next_;
    token_ = next_++;
  }
  std::span<const ExpertId> Predict(uint32_t distance) override {
    return trace_.experts(token_, layer_ + distance);
  }

 private:
  const Trace& trace_;
  size_t next_ = 0;  // where the next decode token is looked for
  size_t token_ = 0;
  size_t layer_ = 0;
};

}  // namespace moestro
