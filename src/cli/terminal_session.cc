// SPDX-License-Identifier: MIT
#include "cli/terminal_session.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <utility>

#include "base/work_limit.h"
#include "engine/engine.h"

namespace moestro {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP};

// A signal handler can reach nothing but statics; the program has no others.
std::atomic<Engine*> working_engine = nullptr;
std::atomic<StopSignal*> working_stop = nullptr;
std::atomic<int> interrupts = 0;
std::atomic<int> terminations = 0;  // SIGTERM
std::atomic<bool> is_told_to_end = false;
std::atomic<int> wake_fd = -1;  // of an eventfd: any thread may get the signal

// Signals are counted by their numbers: SIGTERM and SIGHUP that were sent at once arrive in either
// order.
bool IsInsisting(int signal_number) {
  if (signal_number == SIGINT) return interrupts.fetch_add(1) > 0;
  is_told_to_end = true;
  return signal_number == SIGTERM && terminations.fetch_add(1) > 0;
}

void OnSignal(int signal_number) {
  if (IsInsisting(signal_number)) {
    signal(signal_number, SIG_DFL);
    raise(signal_number);
    return;
  }
  if (Engine* engine = working_engine.load()) engine->RequestStop();
  if (StopSignal* stop = working_stop.load()) stop->Request();
  const int why = errno;
  constexpr uint64_t kOne = 1;
  if (const int fd = wake_fd.load(); fd >= 0 && write(fd, &kOne, sizeof(kOne)) < 0) errno = why;
}

void HandleSignals() {
  for (const int number : kSignals) {
    struct sigaction action{};
    if (sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN) continue;
    action = {};
    action.sa_handler = OnSignal;
    sigaction(number, &action, nullptr);
  }
}

void LeaveSignals() {
  for (const int number : kSignals) {
    struct sigaction action{};
    if (sigaction(number, nullptr, &action) == 0 && action.sa_handler == OnSignal) {
      signal(number, SIG_DFL);
    }
  }
}

}  // namespace

InterruptGuard::InterruptGuard(Engine& engine)
    : engine_(engine), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  wake_fd = wake_.get();
  HandleSignals();
}

InterruptGuard::~InterruptGuard() {
  EndWork();
  LeaveSignals();
  wake_fd = -1;
}

void InterruptGuard::BeginWork() {
  interrupts = 0;
  working_engine = &engine_;
  if (interrupted()) engine_.RequestStop();  // the signal came before, or between the two lines
}

void InterruptGuard::EndWork() {
  working_engine = nullptr;
  interrupts = 0;
}

bool InterruptGuard::interrupted() const { return interrupts > 0 || is_ended(); }

bool InterruptGuard::is_ended() const { return is_told_to_end; }

bool InterruptGuard::WaitForInput(int fd) const {
  std::array<pollfd, 2> waiting = {{{fd, POLLIN, 0}, {wake_.get(), POLLIN, 0}}};
  while (!interrupted()) {
    const int ready = poll(waiting.data(), waiting.size(), -1);
    if (ready < 0 && errno != EINTR) break;  // reading will say why
    if (ready > 0 && waiting[0].revents != 0) break;
    uint64_t signals = 0;  // also of earlier ones, which have had their effect
    if (ready > 0 && read(wake_.get(), &signals, sizeof(signals)) < 0) break;
  }
  return !interrupted();
}

StopOnInterrupt::StopOnInterrupt(StopSignal& stop) {
  interrupts = 0;
  working_stop = &stop;
  HandleSignals();
}

StopOnInterrupt::~StopOnInterrupt() {
  working_stop = nullptr;
  LeaveSignals();
}

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
