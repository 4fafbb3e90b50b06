// SPDX-License-Identifier: MIT
// Surrounds the computing of a step's layers: counts time and work in a phase, cleans up after an
// error, steps aside for other texts, and checks the model's files.
//
// Thread rule: the engine thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>

#include "base/clock.h"
#include "base/file_watch.h"
#include "base/result.h"
#include "core/batch.h"
#include "decide/layer/layer_protocol.h"
#include "engine/run_stats.h"
#include "kit/engine_state.h"
#include "kit/layer_decisions.h"
#include "residency/residency.h"

namespace moestro {

class StepFrame {
 public:
  // Clocks of the parts that compute.
  struct Clocks {
    // Seconds for which the engine has waited for reads so far.
    std::function<double()> waited;
    // PhaseStats::serial_seconds and serial_steps so far; empty: not measured.
    std::function<std::pair<double, uint64_t>()> serial = {};
    Clock now;
  };
  // Everything must outlive this. `watch`: the files of the model.
  StepFrame(Residency& residency, LayerDecisions& decisions, FileWatch& watch, EngineState& state,
            Clocks clocks);
  StepFrame(const StepFrame&) = delete;
  StepFrame& operator=(const StepFrame&) = delete;

  Residency& residency() { return residency_; }
  LayerDecisions& decisions() { return decisions_; }
  EngineState& state() { return state_; }
  double now() const { return clocks_.now(); }  // seconds

  // Counts the work of its lifetime in a phase. One phase exists at a time.
  class Phase {
   public:
    Phase(StepFrame& frame, PhaseStats& phase);
    ~Phase();
    Phase(const Phase&) = delete;
    Phase& operator=(const Phase&) = delete;
    // The work has ended, and `done` is returned. After an error no read of the work is left, and a
    // stop request is used up.
    Status End(Status done) const;

   private:
    friend class StepFrame;
    // The counters at the beginning of the work.
    struct Begun {
      PhaseStats* phase = nullptr;
      ExpertCounts residency;
      LossCounts lost;
      uint64_t dense_bytes = 0;
      double waited = 0.0;
      std::pair<double, uint64_t> serial;
      std::chrono::steady_clock::time_point start;
    };

    StepFrame& frame_;
    const Begun begun_;
  };

  // The experts asked for and the time at the beginning of a step.
  struct StepBegin {
    ExpertCounts experts;
    double start = 0.0;
  };
  // Call before a step's first layer.
  StepBegin BeginStep(const LittleStep& little);
  // Gives the costs of a step that decoded to prefetch. look_ahead_seconds: of the routers that
  // were evaluated ahead; dense_seconds: of the dense part, 0: not measured.
  void StepDone(const StepBegin& begin, double look_ahead_seconds, double dense_seconds = 0.0);

  // Adds the bytes of the dense part that a pass has read.
  void AddDense(uint64_t bytes) { dense_bytes_ += bytes; }
  // Checks the files once a second. A change ends this step and all later ones.
  Status LookAtFiles();

 private:
  Phase::Begun Begin(PhaseStats& phase) const;
  void Count(const Phase::Begun& begun) const;

  Residency& residency_;
  LayerDecisions& decisions_;
  FileWatch& watch_;
  EngineState& state_;
  const Clocks clocks_;
  uint64_t dense_bytes_ = 0;  // bytes read by all passes so far
};

}  // namespace moestro
