// SPDX-License-Identifier: MIT
// Big and little: decode rows are computed with fewer experts first, and again with all experts if
// the model is not sure. A second pass overwrites the first pass's keys and values. Experts that
// the first pass's routers chose are read ahead for the second pass. Source: MoBiLE.
//
// Thread rule: the engine thread.
#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"
#include "core/batch.h"
#include "decide/layer/little_judge.h"
#include "forward/forward.h"
#include "kit/step_frame.h"
#include "native/opened_model.h"
#include "native/step_runner.h"

namespace moestro {

class LittleFirst {
 public:
  // Everything must outlive this. REQUIRES: opened.little.is_on().
  LittleFirst(const OpenedModel& opened, StepRunner& runner, const Forward& forward,
              StepFrame& frame)
      : opened_(opened),
        runner_(runner),
        forward_(forward),
        frame_(frame),
        judge_(opened.options.little) {}

  // Whether the step is computed with fewer experts first.
  bool Takes(const Batch& batch) const;
  // As StepRunner::Compute(). If the little pass is not sure of a row, the row is computed again
  // with all experts. The logits of these rows come last. REQUIRES: Takes(batch).
  Status Compute(const Batch& batch, const StepRunner::LogitsSink& sink);

 private:
  Status ComputeAgain(const Batch& batch, std::span<const size_t> rows,
                      const StepRunner::LogitsSink& sink);

  const OpenedModel& opened_;
  StepRunner& runner_;
  const Forward& forward_;
  StepFrame& frame_;
  LittleJudge judge_;
};

}  // namespace moestro
