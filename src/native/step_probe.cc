// SPDX-License-Identifier: MIT
#include "native/step_probe.h"

#include <algorithm>
#include <utility>

namespace moestro {
namespace {

Result<std::optional<double>> FastestStep(StepRunner& runner, const Batch& again) {
  constexpr int kRepeats = 4;
  std::optional<double> best;
  for (int done = 0; done < kRepeats;) {
    PhaseStats once;
    Status status = runner.Repeat(again, once);
    if (!status && status.error().code == Errc::kInterrupted) {
      // A stop that came too late for the tokens before is no reason to fail now; it ends one try.
      TRY_STATUS(runner.Extend(again));
      continue;
    }
    TRY_STATUS(std::move(status));
    ++done;
    if (once.misses == 0) best = std::min(best.value_or(once.seconds), once.seconds);
  }
  return best;
}

}  // namespace

Result<std::optional<double>> ProbeStep(StepRunner& runner, Batch again,
                                        const ProbedPasses& passes) {
  std::optional<double> few = 0.0;
  double share = 1.0;  // of the steps, with all experts
  if (passes.first.is_on()) {
    again.little = passes.first;
    TRY(few, FastestStep(runner, again));
    again.little = {};
    share = passes.share;
  }
  TRY(const std::optional<double> big, FastestStep(runner, again));
  if (!few || !big) return std::optional<double>();
  return *few + share * *big;
}

}  // namespace moestro
