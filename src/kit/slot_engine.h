// SPDX-License-Identifier: MIT
// An engine whose experts live in slots. This class has every verb of Engine that does not depend
// on whose forward pass computes the layers: a step from its checks to its counters, the contents
// of slots, and all measurements. The native and the hosted engine derive from this class.
//
// Thread rule: that of Engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "kit/expert_slots.h"
#include "kit/step_frame.h"
#include "memory/sequence.h"

namespace moestro {

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
