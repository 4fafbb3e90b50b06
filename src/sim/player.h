// SPDX-License-Identifier: MIT
// A trace's steps through the engine's own LayerProtocol, against a pretend disk, processor and
// devices. Used by replay.cc alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/ids.h"
#include "core/layer_plan.h"
#include "decide/ahead/predictor.h"
#include "decide/layer/layer_protocol.h"
#include "decide/layer/little_judge.h"
#include "sim/machine.h"
#include "sim/replay.h"
#include "sim/sim_devices.h"
#include "sim/sim_memory.h"
#include "sim/sim_pools.h"

namespace moestro {

// Tokens of a trace that are computed together, with all their experts or with the first K'.
struct Pass {
  std::vector<size_t> tokens;
  bool decodes = false;  // some of them
  bool is_little = false;
};

// Runs the steps of a trace through the engine's own LayerProtocol.
class Player {
 public:
  // `tables` by pool; the pools and options must outlive this.
  Player(const Trace& trace, std::vector<SlotTable> tables, const ReplayOptions& options,
         const SimPools& pools);

  // What options.lanes has beside memory. Before Play().
  void AddDevices(SimTables tables);
  // Lossy choices; the parts must outlive this. Before Play().
  void MakeLossy(const LossyParts& lossy) { lossy_ = lossy; }

  ReplayResult Play(std::unique_ptr<Predictor> predictor);

 private:
  uint32_t depth() const;
  bool counts(const Pass& step) const { return step.tokens.front() >= options_.count_from; }
  // Prompts take time on lanes only.
  bool is_timed(const Pass& pass) const { return pass.decodes || devices_.has_value(); }

  void BeginSequence();
  void RunStep(const Pass& step);

  // What routing the rows of a pass did at a layer -> the plan.
  LayerPlan Plan(const Pass& pass, uint32_t layer);

  void Prefill(const Pass& step);
  void Decode(const Pass& step);
  // All layers. Gives the seconds of computation.
  double DecodePass(const Pass& pass);
  bool is_for_little(const Pass& step) const;
  // As the native engine's LittleFirst::Compute(). Gives the seconds of computation.
  double DecodeLittleFirst(const Pass& step);
  double DecodeAgain(const Pass& again);
  // Of one token whose experts are resident.
  double ComputeSeconds(uint32_t n_used) const;
  // Adds what one table did in a step; gives how many of its experts had to be read.
  double Count(const ExpertCounts& before, const ExpertCounts& now);

  // A layer: its experts are asked for in the order of the plan, as many at a time as there is room
  // for, then later layers', then all are computed.
  void RunLayer(const Pass& pass, uint32_t layer, StepCost& cost);
  void ComputeDense(const Pass& pass, uint32_t layer);
  std::vector<Asked> AskFor(const Pass& pass, const LayerPlan& plan);
  // Makes room: the oldest expert of the layer is computed and let go; without one, the oldest of
  // what was read ahead.
  void LetGoOfOldest(const Pass& pass, std::span<Asked> held);
  void AskAhead(const Pass& pass, std::span<const ExpertKey> keys, size_t& asked);
  // The experts of a layer, each once it is there.
  // Gives the moment at which the last one had to be waited for.
  double ComputeExperts(const Pass& pass, std::span<Asked> asked);
  // Once all of it is there: on the CPU, or the copy to its device.
  void Compute(const Pass& pass, Asked& asked);
  bool WaitFor(const Asked& asked);  // whether it had to
  double ExpertSeconds(const Asked& asked);
  void AddPenalty(std::span<const Asked> asked);
  void FinishReadAhead();

  const Trace& trace_;
  const TraceInfo& info_;
  const ReplayOptions& options_;
  const SimPools& pools_;
  Machine machine_;
  SimMemory memory_;
  std::optional<SimDevices> devices_;  // with lanes
  double dense_seconds_;               // of a layer's dense part, without lanes
  double seconds_per_byte_;            // of experts, to compute with them; the same
  std::optional<PrefetchPlanner> planner_;
  std::optional<LayerProtocol> protocol_;
  LossyParts lossy_;
  std::deque<Asked> read_ahead_;  // a prompt's next layer
  LittleStep little_;             // the first pass; off: there is none
  LittleJudge judge_;
  bool counts_ = false;        // the step is one of decode, and not one that warms up
  double staged_bytes_ = 0.0;  // of the step, read past memory's slots
  std::vector<PredictionScore> uncounted_;
  PredictionScore uncounted_foreseen_;
  uint32_t look_ahead_ = 0;  // layers whose routers are evaluated in this step
  ReplayResult result_;
};

}  // namespace moestro
