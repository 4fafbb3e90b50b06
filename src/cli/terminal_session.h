// SPDX-License-Identifier: MIT
// A session at a terminal: with a progress bar during work, and a text that the signals of
// cli/terminal_session.h end.
#pragma once

#include <unistd.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/input_file.h"
#include "base/result.h"
#include "base/terminal.h"
#include "engine/engine.h"
#include "text/session.h"

namespace moestro {

// Signals that end work in order. Ctrl-C (SIGINT) stops the engine's work, and the second ends the
// process at once. SIGTERM, and SIGHUP when the terminal is gone, stop the work as well and end the
// command behind it, with everything kept that Ctrl-C keeps. A terminal that closes sends SIGHUP
// more than once, and service managers both, so that only a second SIGTERM ends the process. A
// signal that the process was started to ignore (nohup) stays ignored.

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

// A Progress that draws on `bar`, which must outlive it.
Progress ShowOn(ProgressBar& bar);

class TerminalSession {
 public:
  // Errors: those of Session::Load().
  static Result<std::unique_ptr<TerminalSession>> Load(const std::string& path,
                                                       const EngineOptions& engine,
                                                       const SamplingOptions& sampling);
  Session& session() { return *session_; }
  // Calls Session::Start().
  Status Start();
  // Calls Session::Continue(), until Ctrl-C.
  Result<Generated> Continue(std::span<const Token> tokens, const GenerateOptions& options,
                             const std::function<bool(std::string_view)>& emit);
  // Calls Engine::WorkWhileIdle(), until Ctrl-C.
  bool WorkWhileIdle();
  bool is_interrupted() const { return interrupt_->interrupted(); }  // since the last work
  // False: a signal came before a line at the terminal.
  bool WaitForLine() const { return interrupt_->WaitForInput(STDIN_FILENO); }
  // Runs other work of the engine. Ctrl-C ends the work with kInterrupted.
  template <class Work>
  auto Interruptible(const Work& work) {
    interrupt_->BeginWork();
    auto made = work();
    interrupt_->EndWork();
    bar_.Clear();
    return made;
  }

 private:
  explicit TerminalSession(std::unique_ptr<Session> session) : session_(std::move(session)) {}

  ProgressBar bar_{ProgressBar::Stderr()};
  std::unique_ptr<Session> session_;  // draws on bar_
  std::optional<InterruptGuard> interrupt_;
};

}  // namespace moestro
