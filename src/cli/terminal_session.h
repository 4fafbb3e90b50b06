// SPDX-License-Identifier: MIT
// A session at a terminal: with a progress bar during work, and a text that the signals of
// cli/interrupt.h end.
#pragma once

#include <unistd.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/progress.h"
#include "base/result.h"
#include "cli/interrupt.h"
#include "engine/engine.h"
#include "text/session.h"

namespace moestro {

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
