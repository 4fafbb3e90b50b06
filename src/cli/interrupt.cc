// SPDX-License-Identifier: MIT
#include "cli/interrupt.h"

#include <signal.h>

#include <atomic>

#include "engine/engine.h"

namespace moestro {
namespace {

// A signal handler can reach nothing but statics; these two are the program's only ones.
std::atomic<Engine*> working_engine = nullptr;
std::atomic<int> interrupts = 0;

void OnInterrupt(int signal_number) {
  if (interrupts.fetch_add(1) > 0) {
    signal(signal_number, SIG_DFL);
    raise(signal_number);
    return;
  }
  if (Engine* engine = working_engine.load()) engine->RequestStop();
}

}  // namespace

InterruptGuard::InterruptGuard(Engine& engine) : engine_(engine) {
  struct sigaction action{};
  action.sa_handler = OnInterrupt;  // without SA_RESTART: a blocked read of the terminal returns
  sigaction(SIGINT, &action, nullptr);
}

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

}  // namespace moestro
