// SPDX-License-Identifier: MIT
// Ctrl-C: the first stops the engine's work and lets the command end in order, a second one ends
// the process at once.
#pragma once

namespace moestro {

class Engine;

// Takes over SIGINT while it lives; at most one at a time. The engine thread uses it.
class InterruptGuard {
 public:
  // `engine` must outlive this.
  explicit InterruptGuard(Engine& engine);
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  // Between these two an interrupt reaches the engine; outside it only makes a blocked read of the
  // terminal return. Both forget earlier interrupts.
  void BeginWork();
  void EndWork();
  // There was one since BeginWork(). REQUIRES: between the two.
  bool interrupted() const;

 private:
  Engine& engine_;
};

}  // namespace moestro
