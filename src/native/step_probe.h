// SPDX-License-Identifier: MIT
// How long a decode step takes when nothing is missing: the last rows again.
#pragma once

#include <optional>

#include "base/result.h"
#include "core/batch.h"
#include "native/step_runner.h"

namespace moestro {

// A first pass with fewer experts, and the share of steps that need a second one.
struct ProbedPasses {
  LittleStep first = {};  // off: there is one pass, with all experts
  double share = 1.0;
};

// Seconds of a step with these rows, the fastest of a few; with a first pass, of that and of the
// second one in its share. nullopt: something was missing each time. kIo: the rows are gone.
// REQUIRES: runner.CanRepeat(again).
Result<std::optional<double>> ProbeStep(StepRunner& runner, Batch again,
                                        const ProbedPasses& passes);

}  // namespace moestro
