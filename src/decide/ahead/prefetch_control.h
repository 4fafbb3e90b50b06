// SPDX-License-Identifier: MIT
// Decides whether prefetch pays and how much of it, from recent times of the disk. Pure.
//
// The disk is idle for some time between the last read that a layer waits for and the next layer's
// router. The part of a prefetch's reads that fits into that time is won if the prediction is
// right. A read under way cannot be called back, so the rest delays the next layer's own reads, and
// is lost if the prediction is wrong. A prefetch pays if p * won > (1 - p) * lost. For the same
// reason no more experts are on their way at a time than fit into the idle time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace moestro {

// Costs of a decode step. Seconds may be measured or simulated.
struct StepCost {
  double seconds = 0.0;
  double demand_seconds = 0.0;      // while a read was under way that a layer waited for
  uint64_t demand_reads = 0;        // experts read in demand_seconds
  double look_ahead_seconds = 0.0;  // of evaluating later layers' routers; 0: not done
  double dense_seconds = 0.0;       // of the dense parts, in which no read is handed out
};

// Experts that may be on their way ahead of time at once: as many as are read in `idle` seconds at
// `read` seconds an expert, the last of them begun within that time; from 1 to kMostAhead. nullopt:
// `idle` is negative, `read` is not above zero, or either is not a number.
inline constexpr size_t kMostAhead = 64;
std::optional<size_t> MostAhead(double idle, double read);

class PrefetchControl {
 public:
  // `layers` with experts of a decode step, at least one; `committed`: the most experts' worth of
  // reads under way that cannot be called back. `is_fixed`: costs of steps are ignored, so that
  // predictions depend on tokens alone.
  PrefetchControl(uint32_t layers, double committed, bool is_fixed = false)
      : layers_(layers), most_committed_(committed), is_fixed_(is_fixed) {}

  // `right`: right predictions of absent experts among those good enough to fetch.
  void StepDone(const StepCost& cost, double right);

  // Predictions that are right less often are not worth fetching; above 1: none is.
  double least_precision() const;
  // Experts that may be on their way ahead of time at once; nullopt: not known, or `is_fixed`.
  std::optional<size_t> most_ahead() const;
  // Experts' worth of reads that the disk does while a layer's dense part is computed; 0: not
  // known.
  double beside_dense() const;
  // False: evaluating routers ahead of time costs more than fetching their choices gains. Once in a
  // while the result is true nonetheless, to measure whether that has changed.
  bool is_on() const { return is_fixed_ || pays_ || step_ % kTryEvery == 0; }

 private:
  static constexpr uint64_t kTryEvery = 16;
  static constexpr double kSmoothing = 0.1;  // weight of a step in the averages

  double committed() const;
  double won() const;
  double lost() const;

  uint32_t layers_;
  double most_committed_;
  bool is_fixed_;
  double idle_ = 0.0;    // seconds of a layer in which no layer waits for the disk
  double read_ = 0.0;    // seconds to read an expert; 0: none was read yet
  double dense_ = 0.0;   // seconds of a layer's dense part
  double gained_ = 0.0;  // seconds per step
  double cost_ = 0.0;    // of looking ahead, seconds per step
  uint64_t step_ = 0;
  bool pays_ = true;
};

}  // namespace moestro
