// SPDX-License-Identifier: MIT
// Big and little: decode rows are computed with fewer experts first, and again with all experts if
// the model is not sure. A second pass overwrites the first pass's keys and values. Experts that
// the first pass's routers chose are read ahead for the second pass. Source: MoBiLE.
//
// Thread rule: the engine thread.
#pragma once

#include <cstddef>
#include <span>

#include "base/clock.h"
#include "base/result.h"
#include "core/batch.h"
#include "decide/ahead/prefetch_planner.h"
#include "decide/layer/little_judge.h"
#include "engine/run_stats.h"
#include "forward/forward.h"
#include "native/step_runner.h"
#include "residency/residency.h"

namespace moestro {

class LittleFirst {
 public:
  // Everything is borrowed and must outlive this; stats: the counters of both passes.
  struct Parts {
    StepRunner& runner;
    const Forward& forward;
    const Residency& residency;
    const PrefetchPlanner& planner;
    const Clock& clock;
    LittleStats& stats;
    uint32_t n_used = 0;  // K
    uint32_t chunk = 0;
  };
  LittleFirst(const Parts& parts, const LittleStep& first, const LittleOptions& options)
      : parts_(parts), first_(first), judge_(options) {}

  const LittleStep& first() const { return first_; }
  // Whether the step is computed with fewer experts first.
  bool Takes(const Batch& batch) const;
  // As StepRunner::Compute(). If the little pass is not sure of a row, the row is computed again
  // with all experts. The logits of these rows come last. REQUIRES: Takes(batch).
  Status Compute(const Batch& batch, const StepRunner::LogitsSink& sink);

 private:
  Status ComputeAgain(const Batch& batch, std::span<const size_t> rows,
                      const StepRunner::LogitsSink& sink);

  Parts parts_;
  LittleStep first_;
  LittleJudge judge_;
};

}  // namespace moestro
