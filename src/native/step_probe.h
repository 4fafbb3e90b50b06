// SPDX-License-Identifier: MIT
// Measures a decode step with no expert missing, by computing the last rows again.
#pragma once

#include <optional>

#include "base/result.h"
#include "core/batch.h"
#include "native/step_runner.h"

namespace moestro {

// A first pass with fewer experts, and the share of steps that need a second one.
struct ProbedPasses {
  LittleStep first = {};  // off: one pass, with all experts
  double share = 1.0;
  bool takes_mean = false;  // the mean of the steps of a quarter of a second and more
};

// Seconds of a step with these rows: the fastest of a few steps, or the mean of many. With a first
// pass, the second pass is added in its share. nullopt: an expert was missing in every step. kIo:
// the sequences have lost the rows. REQUIRES: runner.CanRepeat(again).
Result<std::optional<double>> ProbeStep(StepRunner& runner, Batch again,
                                        const ProbedPasses& passes);

}  // namespace moestro
