// SPDX-License-Identifier: MIT
#include "residency/phase_counter.h"

#include <utility>

#include "base/check.h"

namespace moestro {

Status PhaseCounter::Count(PhaseStats& phase, const std::function<Status()>& work) {
  Begun begun = Begin(phase);
  // The count that stepped aside for this one, if any.
  Begun* const around = std::exchange(counting_, &begun);
  Status status = work();
  End(begun);
  counting_ = around;
  return status;
}

Status PhaseCounter::Aside(const std::function<Status()>& work) {
  CHECK(is_counting());
  Begun& begun = *counting_;
  End(begun);
  Status status = work();
  begun = Begin(*begun.phase);
  return status;
}

PhaseCounter::Begun PhaseCounter::Begin(PhaseStats& phase) const {
  return {.phase = &phase,
          .residency = residency_.stats(),
          .lost = protocol_.losses(),
          .dense_bytes = dense_bytes_,
          .waited = waited_(),
          .serial = serial_(),
          .start = std::chrono::steady_clock::now()};
}

void PhaseCounter::End(const Begun& begun) const {
  PhaseStats& phase = *begun.phase;
  ExpertCounts& of_experts = phase;
  const ExpertCounts did = residency_.stats() - begun.residency;
  of_experts += did;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun.start;
  phase.seconds += took.count();
  phase.wait_seconds += waited_() - begun.waited;
  const auto [serial_seconds, serial_steps] = serial_();
  phase.serial_seconds += serial_seconds - begun.serial.first;
  phase.serial_steps += serial_steps - begun.serial.second;
  phase.touched_bytes += did.asked_bytes + dense_bytes_ - begun.dense_bytes;
  phase.losses += protocol_.losses() - begun.lost;
}

}  // namespace moestro
