// SPDX-License-Identifier: MIT
// The frame around the layers of a step: the state that outlasts parts, the decisions around each
// layer, phases and checks.
//
// Thread rule: the engine thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "base/input_file.h"
#include "base/result.h"
#include "base/work_limit.h"
#include "core/batch.h"
#include "decide/ahead/predictors.h"
#include "decide/ahead/prefetch_planner.h"
#include "decide/devices/device_tier.h"
#include "decide/layer/layer_protocol.h"
#include "decide/slots/slot_table.h"
#include "engine/engine.h"
#include "engine/run_stats.h"
#include "engine/watchers.h"
#include "kit/expert_slots.h"
#include "residency/leases.h"
#include "residency/residency.h"

namespace moestro {

// Surrounds the computing of a step's layers: counts time and work in a phase, cleans up after an
// error, steps aside for other texts, and checks the model's files.

// State of an engine that outlasts a restart of its parts: requests of callers, and counters.
//
// Thread rule: that of Engine.

struct EngineState {
  EngineState(StopSignal::AtLook at_look, Progress reports)
      : stop(std::move(at_look)), progress(std::move(reports)) {}
  EngineState(const EngineState&) = delete;
  EngineState& operator=(const EngineState&) = delete;

  StopSignal stop;
  std::optional<Error> closed = {};  // why no further step can be computed; parts may be missing
  Watchers watchers = {};
  SlotTable::Observer request_observer = {};
  RunStats stats = {};
  Progress progress;
  // Calls `progress`, if any.
  const Progress report = [this](const char* what, uint64_t done, uint64_t total) {
    if (progress) progress(what, done, total);
  };
};

// Holds the decisions around each layer of a step: the layer's plan, and the experts that are read
// before a layer requests them. The simulator makes the same decisions.
//
// Thread rule: the engine thread.

class LayerDecisions {
 public:
  struct Rules {
    uint32_t look_ahead = 0;     // layers that experts are predicted for; 0: nothing is predicted
    LossyRules lossy = {};       // without a chooser every plan is exact
    DeviceTier* tier = nullptr;  // null: no devices
    bool is_fixed = false;       // prefetch must not depend on timing
  };
  // `slots` and the parts of `rules` must outlive this. kUsage. REQUIRES: slots.Allocate().
  static Result<std::unique_ptr<LayerDecisions>> Create(const PredictorChoice& predictor,
                                                        ExpertSlots& slots, const Rules& rules);
  LayerDecisions(const LayerDecisions&) = delete;
  LayerDecisions& operator=(const LayerDecisions&) = delete;

  PrefetchPlanner& planner() { return *planner_; }
  const PrefetchPlanner& planner() const { return *planner_; }
  LayerProtocol& protocol() { return *protocol_; }
  // Scores of the predictions, by distance; empty: nothing is predicted.
  std::span<const PredictionScore> scores() const;
  // Call before the first step after all sequences have ended.
  void BeginSequence();

 private:
  LayerDecisions(Residency& residency, const Rules& rules)
      : residency_(residency), rules_(rules), prefetched_(residency, rules.tier) {}

  Residency& residency_;
  const Rules rules_;
  PrefetchedExperts prefetched_;
  std::optional<PrefetchPlanner> planner_;
  std::optional<LayerProtocol> protocol_;
};

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
