// SPDX-License-Identifier: MIT
#include "cli/terminal_session.h"

#include <utility>

namespace moestro {

Progress ShowOn(ProgressBar& bar) {
  return [&bar](const char* what, uint64_t done, uint64_t total) { bar.Update(what, done, total); };
}

Result<std::unique_ptr<TerminalSession>> TerminalSession::Load(const std::string& path,
                                                               const EngineOptions& engine,
                                                               const SamplingOptions& sampling) {
  TRY(std::unique_ptr<Session> session, Session::Load(path, engine, sampling));
  return std::unique_ptr<TerminalSession>(new TerminalSession(std::move(session)));
}

Status TerminalSession::Start() {
  TRY_STATUS(session_->Start(ShowOn(bar_)));
  interrupt_.emplace(session_->engine());
  return {};
}

bool TerminalSession::WorkWhileIdle() {
  return !is_interrupted() && session_->engine().WorkWhileIdle();
}

Result<Generated> TerminalSession::Continue(std::span<const Token> tokens,
                                            const GenerateOptions& options,
                                            const std::function<bool(std::string_view)>& emit) {
  interrupt_->BeginWork();
  Result<Generated> made = session_->Continue(
      tokens, options,
      [&](std::string_view text) {
        bar_.Clear();
        return emit(text);
      },
      [&] { return interrupt_->interrupted(); });
  interrupt_->EndWork();
  bar_.Clear();
  return made;
}

}  // namespace moestro
