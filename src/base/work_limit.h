// SPDX-License-Identifier: MIT
// Clocks, requests to stop, and limits for the work of a client that is not trusted.
//
// Thread rule: one thread, whose processor time counts.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "base/result.h"

namespace moestro {

// Bounds the processor time of work for a client that is not trusted, and ends it when all work
// shall end. Code that may take long reports its progress and stops on an error.
//
// A handle: copies count together. Without rules no limit applies.

// Code that measures time takes a Clock, so that tests can stop it.

// Seconds since some moment.
using Clock = std::function<double()>;

inline double SteadySeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// A request to end the work under way. Threads that compute check for a request now and then,
// between pieces of some milliseconds, and leave; the thread that began the work takes the request
// back once all have left.
//
// Thread rule: Request() from any thread or a signal handler, is_requested() from any thread, the
// other methods from the thread that begins the work, while no other thread checks.

class StopSignal {
 public:
  // For tests: called at every look, by the looking thread; true requests a stop at that moment.
  using AtLook = std::function<bool()>;

  StopSignal() = default;
  explicit StopSignal(AtLook at_look) : at_look_(std::move(at_look)) {}

  // Relaxed, as all of a request: no data comes with one.
  void Request() { requested_.store(true, std::memory_order_relaxed); }
  // Stays true until Take(), so that one piece of work cannot leave and the next one go on. Two
  // loads of a line that no thread writes.
  bool is_requested() {
    if (is_held_) return false;
    if (at_look_ && at_look_()) Request();
    return requested_.load(std::memory_order_relaxed);
  }
  // Takes a request back once all threads have left.
  void Take() { requested_.store(false, std::memory_order_relaxed); }

  // While a Hold lives is_requested() is false; a request that comes meanwhile counts afterwards.
  // For work that must not be left half done.
  class Hold {
   public:
    explicit Hold(StopSignal& signal) : signal_(signal) { signal_.is_held_ = true; }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    ~Hold() { signal_.is_held_ = false; }

   private:
    StopSignal& signal_;
  };

 private:
  std::atomic<bool> requested_{false};
  bool is_held_ = false;
  AtLook at_look_;
};

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
