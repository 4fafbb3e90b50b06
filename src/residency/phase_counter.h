// SPDX-License-Identifier: MIT
// Counts the time and work of a phase, by the clocks and counters of the parts before and after.
//
// Thread rule: the engine thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>

#include "base/result.h"
#include "decide/layer/layer_protocol.h"
#include "engine/run_stats.h"
#include "residency/residency.h"

namespace moestro {

class PhaseCounter {
 public:
  using Seconds = std::function<double()>;
  using Serial = std::function<std::pair<double, uint64_t>()>;
  // Both must outlive this. `waited`: seconds for which the engine has waited for reads so far;
  // `serial`: PhaseStats::serial_seconds and serial_steps, since creation.
  PhaseCounter(const Residency& residency, const LayerProtocol& protocol, Seconds waited,
               Serial serial)
      : residency_(residency),
        protocol_(protocol),
        waited_(std::move(waited)),
        serial_(std::move(serial)) {}

  // Runs the work and adds its counts to the phase, also after an error.
  Status Count(PhaseStats& phase, const std::function<Status()>& work);
  // Within Count(): other work, which the innermost phase does not count. REQUIRES: is_counting().
  Status Aside(const std::function<Status()>& work);
  bool is_counting() const { return counting_ != nullptr; }
  // Adds the bytes of the dense part that a pass has read.
  void AddDense(uint64_t bytes) { dense_bytes_ += bytes; }

 private:
  // The counters at the beginning of a phase's work.
  struct Begun {
    PhaseStats* phase = nullptr;
    ExpertCounts residency;
    LossCounts lost;
    uint64_t dense_bytes = 0;
    double waited = 0.0;
    std::pair<double, uint64_t> serial;
    std::chrono::steady_clock::time_point start;
  };
  Begun Begin(PhaseStats& phase) const;
  void End(const Begun& begun) const;

  const Residency& residency_;
  const LayerProtocol& protocol_;
  const Seconds waited_;
  const Serial serial_;
  uint64_t dense_bytes_ = 0;   // bytes read by all passes so far
  Begun* counting_ = nullptr;  // the innermost phase under way
};

}  // namespace moestro
