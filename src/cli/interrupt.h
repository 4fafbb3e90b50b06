// SPDX-License-Identifier: MIT
// Ctrl-C: the first stops the engine's work, and the command ends in order. The second ends the
// process at once.
#pragma once

namespace moestro {

class Engine;
class StopSignal;

// Handles SIGINT while it lives. At most one guard exists at a time. Only the engine thread uses
// it.
class InterruptGuard {
 public:
  // `engine` must outlive this.
  explicit InterruptGuard(Engine& engine);
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  // Between BeginWork() and EndWork() an interrupt reaches the engine. Outside, an interrupt only
  // ends a blocked read of the terminal. Both calls clear earlier interrupts.
  void BeginWork();
  void EndWork();
  // Whether an interrupt came since the last of these calls.
  bool interrupted() const;

 private:
  Engine& engine_;
};

// Handles SIGINT while it lives: the first one asks for a stop, the second ends the process. Not
// while an InterruptGuard exists.
class StopOnInterrupt {
 public:
  // `stop` must outlive this.
  explicit StopOnInterrupt(StopSignal& stop);
  ~StopOnInterrupt();
  StopOnInterrupt(const StopOnInterrupt&) = delete;
  StopOnInterrupt& operator=(const StopOnInterrupt&) = delete;
};

}  // namespace moestro
