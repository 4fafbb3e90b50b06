// SPDX-License-Identifier: MIT
// Signals that end work in order. Ctrl-C (SIGINT) stops the engine's work, and the second ends the
// process at once. SIGTERM, and SIGHUP when the terminal is gone, stop the work as well and end the
// command behind it, with everything kept that Ctrl-C keeps. A terminal that closes sends SIGHUP
// more than once, and service managers both, so that only a second SIGTERM ends the process. A
// signal that the process was started to ignore (nohup) stays ignored.
#pragma once

#include "base/unique_fd.h"

namespace moestro {

class Engine;
class StopSignal;

// Handles the signals during its life. At most one guard exists at a time. Only the engine thread
// uses it.
class InterruptGuard {
 public:
  // `engine` must outlive this.
  explicit InterruptGuard(Engine& engine);
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  // Between BeginWork() and EndWork() a signal reaches the engine. Outside, a signal only ends a
  // wait for the terminal. Both calls clear earlier Ctrl-Cs; the other signals stay, and work that
  // begins after them stops at once.
  void BeginWork();
  void EndWork();
  // Whether a Ctrl-C came since the last BeginWork() or EndWork(), or one of the other signals at
  // any time.
  bool interrupted() const;
  // Whether the command is to end: one of the other signals came.
  bool is_ended() const;
  // Waits until the descriptor can be read. False: a signal came before or meanwhile.
  bool WaitForInput(int fd) const;

 private:
  Engine& engine_;
  UniqueFd wake_;  // can be read once a signal came
};

// Handles the signals during its life: the first signal requests a stop. REQUIRES: no
// InterruptGuard exists.
class StopOnInterrupt {
 public:
  // `stop` must outlive this.
  explicit StopOnInterrupt(StopSignal& stop);
  ~StopOnInterrupt();
  StopOnInterrupt(const StopOnInterrupt&) = delete;
  StopOnInterrupt& operator=(const StopOnInterrupt&) = delete;
};

}  // namespace moestro
