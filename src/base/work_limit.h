// SPDX-License-Identifier: MIT
// What work on behalf of a stranger may take: processor time, until all work shall end. Code that
// may take long says how far it has come, and stops when it is told to.
//
// A handle: copies count together. Without rules it only lets everything pass.
//
// Thread rule: one thread, whose processor time it is.
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

  // `steps`: bytes or small parts that have been dealt with, some nanoseconds each. Looks at the
  // clock once for many of them. An error once, an error for ever: kInvalidRequest when the time is
  // used up, kInterrupted when all work shall end.
  Status Spend(size_t steps) const;
  // Looks at the clock now, for what takes long at once. Half a microsecond.
  Status Look() const;
  // Another process or thread has worked for this one; its time counts as well. As Look().
  Status Charge(double processor_seconds) const;
  // Of the processor; infinite without rules.
  double seconds_left() const;
  // What the last look said.
  Status status() const;
  uint64_t steps() const;  // that have been spent

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace moestro
