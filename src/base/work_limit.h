// SPDX-License-Identifier: MIT
// Bounds the processor time of work for a client that is not trusted, and ends it when all work
// shall end. Code that may take long reports its progress and stops on an error.
//
// A handle: copies count together. Without rules no limit applies.
//
// Thread rule: one thread, whose processor time counts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "base/clock.h"
#include "base/result.h"

namespace moestro {

// Seconds of the processor that the calling thread has used.
double ThreadProcessorSeconds();

class WorkLimit {
 public:
  struct Rules {
    double processor_seconds = 0.0;
    Clock clock = ThreadProcessorSeconds;
    std::function<bool()> is_over = {};  // all work shall end; empty: never
  };

  WorkLimit() = default;
  explicit WorkLimit(Rules rules);

  // Reports progress. `steps`: bytes or small parts that have been processed, some nanoseconds
  // each. Checks the clock once for many steps. An error is permanent: kInvalidRequest when the
  // time is used up, kInterrupted when all work shall end.
  Status Spend(size_t steps) const;
  // Checks the clock now, for single steps that take long. Half a microsecond.
  Status Look() const;
  // Adds time that another process or thread has worked for this one. As Look().
  Status Charge(double processor_seconds) const;
  // Processor time left; infinite without rules.
  double seconds_left() const;
  // The result of the last check of the clock.
  Status status() const;
  uint64_t steps() const;  // spent so far

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace moestro
