// SPDX-License-Identifier: MIT
#include "cli/interrupt.h"

#include <signal.h>

#include <atomic>

#include "base/stop_signal.h"
#include "engine/engine.h"

namespace moestro {
namespace {

// A signal handler can reach nothing but statics; these three are the program's only ones.
std::atomic<Engine*> working_engine = nullptr;
std::atomic<StopSignal*> working_stop = nullptr;
std::atomic<int> interrupts = 0;

void OnInterrupt(int signal_number) {
  if (interrupts.fetch_add(1) > 0) {
    signal(signal_number, SIG_DFL);
    raise(signal_number);
    return;
  }
  if (Engine* engine = working_engine.load()) engine->RequestStop();
  if (StopSignal* stop = working_stop.load()) stop->Request();
}

// Without SA_RESTART: a blocked read of the terminal returns.
void HandleInterrupts() {
  struct sigaction action{};
  action.sa_handler = OnInterrupt;
  sigaction(SIGINT, &action, nullptr);
}

}  // namespace

InterruptGuard::InterruptGuard(Engine& engine) : engine_(engine) { HandleInterrupts(); }

InterruptGuard::~InterruptGuard() {
  EndWork();
  signal(SIGINT, SIG_DFL);
}

void InterruptGuard::BeginWork() {
  interrupts = 0;
  working_engine = &engine_;
  if (interrupts > 0) engine_.RequestStop();  // it came between these two lines
}

void InterruptGuard::EndWork() {
  working_engine = nullptr;
  interrupts = 0;
}

bool InterruptGuard::interrupted() const { return interrupts > 0; }

StopOnInterrupt::StopOnInterrupt(StopSignal& stop) {
  interrupts = 0;
  working_stop = &stop;
  HandleInterrupts();
}

StopOnInterrupt::~StopOnInterrupt() {
  working_stop = nullptr;
  signal(SIGINT, SIG_DFL);
}

}  // namespace moestro
