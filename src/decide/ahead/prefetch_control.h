// SPDX-License-Identifier: MIT
// Whether prefetch pays, from what the disk did lately. Pure.
//
// The disk is idle for some time between the last read that a layer waits for and the next layer's
// router. Of what a prefetch reads, the part that fits into that time is won if the prediction is
// right. A read under way cannot be called back, so whatever does not fit delays the next layer's
// own reads, and is lost if the prediction is wrong. A prefetch pays if p * won > (1 - p) * lost.
#pragma once

#include <cstdint>

namespace moestro {

// What a decode step cost. Seconds may be measured or simulated.
struct StepCost {
  double seconds = 0.0;
  double demand_seconds = 0.0;      // a read that a layer waited for was under way
  uint64_t demand_reads = 0;        // experts read in these
  double look_ahead_seconds = 0.0;  // of evaluating later layers' routers; 0: not done
};

class PrefetchControl {
 public:
  // `layers` of a step; `committed`: experts' worth of reads under way that cannot be called back.
  // `is_fixed`: what steps cost is not looked at, so that what is evaluated ahead depends on tokens
  // alone.
  PrefetchControl(uint32_t layers, double committed, bool is_fixed = false)
      : layers_(layers), committed_(committed), is_fixed_(is_fixed) {}

  // `right`: predictions of absent experts that were right, of those good enough to fetch.
  void StepDone(const StepCost& cost, double right);

  // Predictions that are right less often than this are not worth fetching; above 1: none is.
  double least_precision() const;
  // False: evaluating routers ahead of time costs more than fetching what they say gains. Once in
  // a while it is true nonetheless, to see whether that has changed.
  bool is_on() const { return is_fixed_ || pays_ || step_ % kTryEvery == 0; }

 private:
  static constexpr uint64_t kTryEvery = 16;
  static constexpr double kSmoothing = 0.1;  // weight of a step in the averages

  double won() const;
  double lost() const;

  uint32_t layers_;
  double committed_;
  bool is_fixed_;
  double idle_ = 0.0;    // seconds of a layer in which no layer waits for the disk
  double read_ = 0.0;    // seconds to read an expert; 0: none was read yet
  double gained_ = 0.0;  // seconds per step
  double cost_ = 0.0;    // of looking ahead, seconds per step
  uint64_t step_ = 0;
  bool pays_ = true;
};

}  // namespace moestro
