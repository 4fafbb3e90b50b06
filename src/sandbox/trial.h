// SPDX-License-Identifier: MIT
// Tries work out in a child process first, because the library that does it may abort, run out of
// stack or never return on hostile input.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "sandbox/message_socket.h"

namespace moestro {

struct Trial {
  enum class Outcome {
    kPassed,    // work() returned true
    kRefused,   // work() returned false or threw, for example for lack of memory
    kCrashed,   // the child died by a signal
    kTimedOut,  // the child was ended, or a ProcessorLimit ended it
    kNotRun,    // no child could be started
  };
  Outcome outcome = Outcome::kNotRun;
  std::string output;  // the beginning of the child's output on stderr
};

struct TrialLimits {
  std::chrono::milliseconds time{20'000};
  uint64_t memory = uint64_t{1} << 30U;  // bytes, beyond those of this process
};

// REQUIRES: no other thread of this process holds a lock that work() needs (call it before the
// engine starts its threads).
Trial TryInChild(const std::function<bool()>& work, TrialLimits limits);

// For a child: limits memory to `more_bytes` beyond the parent's (or to the memory that the parent
// has freed and kept, if that is more), and the stack to 4 MiB, less than any thread has that will
// do the work for good. A limit is never raised. An abort writes no core and starts no debugger.
void LimitChild(uint64_t more_bytes);

// Bytes of this process's writable memory, as LimitChild() counts them; 0 where /proc is missing.
uint64_t WritableBytes();

// For a child: ends the process by SIGPROF when it has used `limit` of processor time between
// Resume() and Pause(). One object at a time may run.
class ProcessorLimit {
 public:
  explicit ProcessorLimit(std::chrono::milliseconds limit) : limit_(limit), left_(limit) {}
  void Resume() const;
  void Pause();
  void Renew() { left_ = limit_; }

 private:
  std::chrono::microseconds limit_;
  std::chrono::microseconds left_;
};

// Work in a child, watched by its parent, which passes on the child's messages and reports the
// child's end. For a process that ChildStarter has begun.

struct RelayEnd {
  Trial::Outcome outcome = Trial::Outcome::kNotRun;
  int exit_code = 0;               // for kRefused: the child's exit code
  double processor_seconds = 0.0;  // used by the child
};

// Runs `work` in a child, which writes whole messages; these go on to `owner`. The child is ended
// when the owner has gone. `work` sets the child's limits.
RelayEnd RelayChild(MessageSocket& owner, const std::function<void(MessageSocket)>& work);

}  // namespace moestro
