// SPDX-License-Identifier: MIT
// Runs a trace's steps through the engine's own LayerProtocol, with a pretend disk, processor and
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
#include "decide/ahead/predictors.h"
#include "decide/layer/layer_protocol.h"
#include "decide/layer/lossy_options.h"
#include "sim/machine.h"
#include "sim/replay.h"
#include "sim/sim_devices.h"
#include "sim/sim_memory.h"

namespace moestro {

// Tokens of a trace that are computed together, with all their experts or with the first K'.
struct Pass {
  std::vector<size_t> tokens;
  bool decodes = false;  // some of the tokens decode
  bool is_little = false;
  ExpertLayers layers = {};  // layers that the tokens go through
};

// Runs the steps of a trace through the engine's own LayerProtocol.
class Player {
 public:
  // `tables` by pool; the pools and options must outlive this.
  Player(const Trace& trace, std::vector<SlotTable> tables, const ReplayOptions& options,
         const SimPools& pools);

  // Adds the devices of options.lanes. Call before Play().
  void AddDevices(SimTables tables);
  // Sets the parts of lossy choices, which must outlive this. Call before Play().
  void MakeLossy(const LossyRules& lossy) { lossy_ = lossy; }

  ReplayResult Play(std::unique_ptr<Predictor> predictor);

 private:
  uint32_t depth() const;
  bool counts(const Pass& step) const { return step.tokens.front() >= options_.count_from; }
  // Prompts take time on lanes only.
  bool is_timed(const Pass& pass) const { return pass.decodes || devices_.has_value(); }

  void BeginSequence();
  void RunStep(const Pass& step);

  // Makes the plan from the recorded routing of the pass's rows at a layer.
  LayerPlan Plan(const Pass& pass, uint32_t layer);

  void Prefill(const Pass& step);
  void Decode(const Pass& step);
  // Runs all layers. Returns the seconds of computation.
  double DecodePass(const Pass& pass);
  bool is_for_little(const Pass& step) const;
  // Runs a step with fewer experts first, as the native engine's LittleFirst::Compute(). Returns
  // the seconds of computation.
  double DecodeLittleFirst(const Pass& step);
  double DecodeAgain(const Pass& again);
  // The seconds of one token with all experts resident.
  double ComputeSeconds(uint32_t n_used) const;
  // Adds the counts of one table in a step. Returns the number of its experts that were read.
  double Count(const ExpertCounts& before, const ExpertCounts& now);

  // A layer under way.
  struct Layer {
    const LayerPlan& plan;
    size_t next_expert = 0;        // index of the plan's next expert to request
    std::vector<Asked> held = {};  // requested experts in the plan's order, released ones included
    size_t n_let_go = 0;           // of `held`, already released
    uint64_t missing = 0;          // experts that had not landed when they were requested
    std::vector<ExpertKey> next = {};  // the next layers', read ahead
    size_t next_ahead = 0;             // index of the next expert of `next` to request

    bool has_all() const {
      return next_expert == plan.experts.size() ||
             plan.experts[next_expert].place == Place::kDevice;
    }
  };
  // Runs a layer. It requests the layer's experts in the plan's order, as many at a time as slots
  // allow, then experts of later layers. Then it computes all experts of the layer.
  void RunLayer(const Pass& pass, uint32_t layer, StepCost& cost);
  std::vector<ExpertKey> KnownFrom(const Pass& pass, uint32_t layer) const;
  std::vector<ExpertKey> NextLayers(const Pass& pass, uint32_t first) const;
  void BeginReadAhead(const Pass& pass);
  void ComputeDense(const Pass& pass, uint32_t layer, StepCost& cost);
  void Ask(const Pass& pass, Layer& at);
  void AskAhead(const Pass& pass, Layer& at);
  void LetGoOfDone(const Pass& pass, Layer& at);
  // Computes each expert of a layer after its reads. Returns the time of the last wait for an
  // expert.
  double ComputeExperts(const Pass& pass, Layer& at);
  // Computes an expert on the CPU, or copies it to its device. Waits for its reads first.
  void Compute(const Pass& pass, Asked& asked);
  bool WaitFor(const Asked& asked);  // true: the CPU had to wait
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
  double seconds_per_byte_;            // to compute experts, without lanes
  std::optional<PrefetchPlanner> planner_;
  std::optional<LayerProtocol> protocol_;
  LossyRules lossy_;
  std::deque<Asked> read_ahead_;  // of the next layers
  LittleStep little_;             // the first pass; off: one pass
  LittleJudge judge_;
  bool counts_ = false;        // the step decodes and does not warm up
  double staged_bytes_ = 0.0;  // bytes of the step that were read past memory's slots
  std::vector<PredictionScore> uncounted_;
  PredictionScore uncounted_foreseen_;
  uint32_t look_ahead_ = 0;  // layers whose routers are evaluated in this step
  ReplayResult result_;
};

}  // namespace moestro
