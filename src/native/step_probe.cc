// SPDX-License-Identifier: MIT
#include "native/step_probe.h"

#include <algorithm>
#include <utility>

namespace moestro {
namespace {

constexpr int kRepeats = 4;
constexpr double kSecondsOfAMean = 0.25;
// Bounds a mean where steps miss experts, or take no time by the clock.
constexpr int kMostRepeats = 4096;

// The fastest of a few steps, or the mean of more.
Result<std::optional<double>> TimeSteps(StepRunner& runner, const Batch& again, bool takes_mean) {
  std::optional<double> best;
  double sum = 0.0;
  int counted = 0;
  for (int done = 0; done < kRepeats ||
                     (takes_mean && counted > 0 && sum < kSecondsOfAMean && done < kMostRepeats);) {
    PhaseStats once;
    Status status = runner.Repeat(again, once);
    if (!status && status.error().code == Errc::kInterrupted) {
      // A stop request that came too late for earlier tokens ends one try, and is no reason to
      // fail.
      TRY_STATUS(runner.Extend(again));
      continue;
    }
    TRY_STATUS(std::move(status));
    ++done;
    if (once.misses > 0) continue;
    best = std::min(best.value_or(once.seconds), once.seconds);
    sum += once.seconds;
    ++counted;
  }
  return takes_mean && counted > 0 ? sum / counted : best;
}

}  // namespace

Result<std::optional<double>> ProbeStep(StepRunner& runner, Batch again,
                                        const ProbedPasses& passes) {
  std::optional<double> few = 0.0;
  double share = 1.0;  // share of steps that need a pass with all experts
  if (passes.first.is_on()) {
    again.little = passes.first;
    TRY(few, TimeSteps(runner, again, passes.takes_mean));
    again.little = {};
    share = passes.share;
  }
  TRY(const std::optional<double> big, TimeSteps(runner, again, passes.takes_mean));
  if (!few || !big) return std::optional<double>();
  return *few + share * *big;
}

}  // namespace moestro
