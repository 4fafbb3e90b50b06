// SPDX-License-Identifier: MIT
// Tries something out in a child process first, because the library that does it may abort, run out
// of stack or never return on hostile input.
#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace moestro {

struct Trial {
  enum class Outcome {
    kPassed,    // work() returned true
    kRefused,   // work() returned false or threw, as it does when it needs over 1 GiB of memory
    kCrashed,   // the child died by a signal
    kTimedOut,  // the child was ended
    kNotRun,    // no child could be started
  };
  Outcome outcome = Outcome::kNotRun;
  std::string output;  // the start of what the child wrote to stderr
};

// REQUIRES: no other thread of this process holds a lock that work() needs (call it before the
// engine starts its threads).
Trial TryInChild(const std::function<bool()>& work, std::chrono::milliseconds limit);

}  // namespace moestro
