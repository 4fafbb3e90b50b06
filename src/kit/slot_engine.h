// SPDX-License-Identifier: MIT
// An engine whose experts live in slots. This class has every verb of Engine that does not depend
// on whose forward pass computes the layers: a step from its checks to its counters, the contents
// of slots, and all measurements. The native and the hosted engine derive from this class.
//
// Thread rule: that of Engine.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

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
#include "kit/rate_watch.h"
#include "memory/sequence.h"
#include "residency/leases.h"
#include "residency/residency.h"

namespace moestro {

// State of an engine that outlasts a restart of its parts: requests of callers, and counters.
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

// The frame around the layers of a step: counts time and work in a phase, cleans up after an error,
// and checks the model's files.
class StepFrame {
 public:
  // Clocks of the parts that compute.
  struct Clocks {
    // Seconds for which the engine has waited for reads so far.
    std::function<double()> waited;
    // PhaseStats::serial_seconds and serial_steps so far; empty: not measured.
    std::function<std::pair<double, uint64_t>()> serial = {};
    Clock now;
    // Work of tables on the disk so far; empty: the model has none.
    std::function<TableCounts()> table = {};
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
      TableCounts table;
      uint64_t dense_bytes = 0;
      double waited = 0.0;
      std::pair<double, uint64_t> serial;
      std::chrono::steady_clock::time_point start;
    };

    StepFrame& frame_;
    const Begun begun_;
  };

  // Work and time so far, at the beginning of a step.
  struct StepBegin {
    ExpertCounts experts;
    uint64_t dense_bytes = 0;
    double waited = 0.0;
    double start = 0.0;
  };
  // Call before a step's first layer.
  StepBegin BeginStep(const LittleStep& little);
  // Gives the costs of a step that decoded to prefetch. look_ahead_seconds: of the routers that
  // were evaluated ahead; dense_seconds: of the dense part, 0: not measured. Logs it where the disk
  // or the processor has become slower, or fast again. `rows`: of the step.
  void StepDone(const StepBegin& begin, std::span<const BatchRow> rows, double look_ahead_seconds,
                double dense_seconds = 0.0);

  // Adds the bytes of the dense part that a pass has read.
  void AddDense(uint64_t bytes) { dense_bytes_ += bytes; }
  // Checks the files once a second. A change ends this step and all later ones.
  Status LookAtFiles();

 private:
  // The state of a rate that the log has.
  struct Logged {
    bool is_low = false;
    void Note(bool is_low_now, double share, std::string_view what, uint64_t& falls);
  };
  Phase::Begun Begin(PhaseStats& phase) const;
  void Count(const Phase::Begun& begun) const;
  void WatchRates(const StepBegin& begin, const ExpertCounts& did, std::span<const BatchRow> rows);

  Residency& residency_;
  LayerDecisions& decisions_;
  FileWatch& watch_;
  EngineState& state_;
  const Clocks clocks_;
  uint64_t dense_bytes_ = 0;  // bytes read by all passes so far
  RateWatch demand_watch_;    // experts a second that layers wait for
  RateWatch reads_watch_;     // experts a second of all kinds, in the same seconds
  RateWatch compute_watch_;   // bytes of weights a second, without waits
  Logged disk_;
  Logged compute_;
  size_t watched_rows_ = 0;      // rows of the last decode step
  uint64_t next_positions_ = 0;  // sum of the rows' positions, if the same texts go on
};

// The parts below a forward pass. A restart makes them anew.
struct EngineKit {
  Team& team;
  ExpertSlots& slots;
  LayerDecisions& decisions;
  StepFrame& frame;
};

// Passes each row's logits on once, even where a step is computed a second time.
class LogitsOnce {
 public:
  explicit LogitsOnce(Engine::LogitsSink to) : to_(std::move(to)) {}
  LogitsOnce(const LogitsOnce&) = delete;
  LogitsOnce& operator=(const LogitsOnce&) = delete;

  // The sink of every computation of the step. Must not outlive this.
  Engine::LogitsSink sink() {
    return [this](size_t row, std::span<const float> logits) {
      if (repeats_ > 0) {
        --repeats_;
        return;
      }
      ++passed_;
      if (to_) to_(row, logits);
    };
  }
  // The step is computed again: the logits passed on so far come first.
  void Repeat() { repeats_ = passed_; }

 private:
  Engine::LogitsSink to_;
  size_t passed_ = 0;
  size_t repeats_ = 0;
};

// The rows of a prompt's step on their way through a forward pass.
class StepPieces {
 public:
  virtual ~StepPieces() = default;
  // Computes the next piece; true: none is left. Errors end the step. REQUIRES: within a
  // StepFrame::Phase.
  virtual Result<bool> Advance() = 0;
  // A step of `n_rows` other rows comes before the next piece, and may come several times.
  virtual Status MakeWay(size_t n_rows) = 0;
};

class SlotEngine : public Engine {
 public:
  Sequence NewSequence() final;
  KvRoom kv_room() const final { return sequences().room(); }
  Status Step(const Batch& batch, const LogitsSink& sink = {}) final;
  Result<std::unique_ptr<StepRun>> Begin(Batch batch, LogitsSink sink) final;
  const std::optional<Error>& closed() const final { return state_.closed; }
  void RequestStop() final { state_.stop.Request(); }
  Status Preload() final;
  bool WorkWhileIdle() final;
  RunStats& stats() final { return state_.stats; }
  EngineLearned learned() const override;
  std::vector<SlotContents> slot_contents() const final;
  ExpertLocation place_of(ExpertKey key) const final;
  ResidentModel MakeResidentModel() const final;
  std::span<const std::vector<ExpertId>> widened() const override { return {}; }
  Result<double> ProbeDiskBandwidth() final;
  Result<double> ProbeMemoryBandwidth() final;
  Result<std::optional<double>> ProbeComputeSeconds(std::span<Sequence* const> sequences) override;
  Result<std::optional<Together>> ProbeTogether(std::span<Sequence* const> sequences) final;
  void SetRequestObserver(const SlotTable::Observer& observer) final;
  void SetProgress(Progress progress) final { state_.progress = std::move(progress); }
  // Waits until no read is under way. For tests and probes.
  void FinishReads();

 protected:
  // `state` must outlive this.
  explicit SlotEngine(EngineState& state) : state_(state) {}

  // The parts; nullptr: a restart has failed, and no step can be computed.
  virtual EngineKit* kit() const = 0;
  virtual StepSequences& sequences() const = 0;
  // Checks of a batch beyond those of its rows.
  virtual Status CheckMore(const Batch& batch) const = 0;
  // Computes the rows, which have room, from tokens to logits.
  virtual Status Compute(const Batch& batch, const LogitsSink& sink) = 0;
  // The same rows in pieces; null: they are one piece. `batch` outlives the pieces.
  virtual std::unique_ptr<StepPieces> PiecesOf(const Batch& batch, LogitsSink sink) = 0;
  // The counters of the step under way. `before`: those of its phase when the step began.
  struct StepCount {
    PhaseStats& phase;
    PhaseStats before;
  };
  // As ComputeCounted(), with an engine's own work around it. After an error the rows are cut back.
  virtual Status ComputeStep(const Batch& batch, StepCount& count, const LogitsSink& sink) {
    return ComputeCounted(batch, count.phase, sink);
  }
  // The rows were computed in pieces, with this result, and are committed or cut back. An engine
  // that goes on without lost parts computes them again.
  virtual Status EndPieces(Status computed, const Batch& /*batch*/, PhaseStats& /*phase*/,
                           LogitsOnce& /*logits*/) {
    return computed;
  }
  // The first of two passes, if decode steps have two.
  virtual LittleStep first_pass() const { return {}; }
  // False: devices compute, too, whose work a measurement beside the disk would miss.
  virtual bool computes_alone() const { return true; }

  Watchers& watchers() final { return state_.watchers; }
  EngineState& state() const { return state_; }
  // The kit, or the error of the restart that failed.
  Result<EngineKit*> Kit() const;
  Status Check(const Batch& batch) const;
  // Call before the rows of a step are appended.
  void BeginTexts();
  // Computes the rows and counts the work in the phase. Afterwards the rows are committed, or cut
  // back after an error. REQUIRES: the rows are appended.
  Status ComputeCounted(const Batch& batch, PhaseStats& phase, const LogitsSink& sink);
  // A run is between two of its pieces: parts that its rows use must stay.
  bool has_run() const { return run_ != nullptr; }
  // The last row of each sequence; empty: some row cannot be computed again.
  Batch LastRows(std::span<const Sequence* const> sequences) const;
  bool CanRepeat(const Batch& last) const;
  // Computes the rows again, the last of their sequences. After an error the rows are cut back.
  Status Repeat(const Batch& last, PhaseStats& phase);

 private:
  class Run;
  Status Admit(const Batch& batch);
  Status MakeWay(size_t n_rows);
  StepCount BeginCount(const Batch& batch);
  void EndCount(const Batch& batch, const StepCount& count);
  Result<std::optional<double>> TimeSteps(const Batch& again, bool takes_mean);
  Result<std::optional<double>> TimePasses(Batch again, bool takes_mean);

  EngineState& state_;
  Run* run_ = nullptr;  // the run that is between two of its pieces
};

}  // namespace moestro
