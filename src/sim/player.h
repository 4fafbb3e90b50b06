// SPDX-License-Identifier: MIT
// A trace's steps through the engine's own LayerProtocol, against a pretend disk and processor.
// Used by replay.cc alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/batch.h"
#include "core/ids.h"
#include "core/layer_plan.h"
#include "decide/ahead/predictor.h"
#include "decide/layer/layer_protocol.h"
#include "decide/layer/little_judge.h"
#include "sim/machine.h"
#include "sim/replay.h"
#include "sim/sim_pools.h"
#include "sim/trace_steps.h"

namespace moestro {

// An expert that was prefetched for a later layer, pinned until that layer has run.
struct Prefetched {
  ExpertKey key;
  SlotId slot;
  bool is_ready = true;
  std::vector<Machine::Ticket> reads = {};
};

// An expert that was asked for.
struct Asked {
  ExpertKey key;
  Placement placed;
  std::vector<Machine::Ticket> reads = {};  // in decode
};

// Tokens of a trace that are computed together, with all their experts or with the first K'.
struct Pass {
  std::vector<size_t> tokens;
  bool is_little = false;
};

// Runs the steps of a trace through the engine's own LayerProtocol. An expert costs the same time
// for any number of rows of a step.
class Player final : private ExpertHolder {
 public:
  // `tables` by pool; the pools must outlive this.
  Player(const Trace& trace, std::vector<SlotTable> tables, const ReplayOptions& options,
         const SimPools& pools);

  // Lossy choices; the parts must outlive this.
  void MakeLossy(const LossyParts& lossy) { lossy_ = lossy; }

  ReplayResult Play(std::unique_ptr<Predictor> predictor);

 private:
  uint32_t depth() const;
  SlotTable& table(ExpertKey key) { return tables_[pools_.of(key)]; }

  void BeginSequence();

  // What routing the rows of a pass did at a layer -> the plan.
  LayerPlan Plan(const Pass& pass, uint32_t layer);

  // A layer of a prompt: as many experts at a time as there is room for, then the next layer's.
  void Prefill(const Pass& pass);
  void PrefillLayer(const Pass& pass, uint32_t layer);
  void AskAhead(std::span<const ExpertKey> keys, size_t& asked);
  void Decode(const Pass& step);
  // All layers.
  void DecodePass(const Pass& pass);
  bool is_for_little(const Pass& step) const;
  // As the native engine's LittleFirst::Compute(). Gives the seconds of computation.
  double DecodeLittleFirst(const Pass& step);
  void DecodeAgain(const Pass& again);
  // Of one token whose experts are resident.
  double ComputeSeconds(uint32_t n_used) const;
  std::vector<ExpertCounts> Stats() const;

  // Adds what one table did in a step; gives how many of its experts had to be read.
  double Count(const ExpertCounts& before, const ExpertCounts& now);
  void DecodeLayer(const Pass& pass, uint32_t layer, StepCost& cost);
  void AddPenalty(std::span<const Asked> asked);

  // Of what was prefetched for a layer: complete ones become ready.
  void SettlePrefetched(uint32_t layer);

  // What has to be read of an expert that has just been asked for.
  std::vector<Machine::Ticket> ReadsOf(const ExpertKey& key, const Placement& placed);
  std::vector<Machine::Ticket> Read(ExpertKey key, bool is_urgent);
  bool has_all(std::span<const Machine::Ticket> reads) const;
  // The experts of a layer, each once it is there.
  // Gives the moment at which the last one had to be waited for.
  double ComputeExperts(std::vector<Asked> asked);
  double ExpertSeconds(const Asked& expert);

  // ExpertHolder:
  bool contains(ExpertKey key) const override { return tables_[pools_.of(key)].contains(key); }
  void BeginLayer(ExpertLayerId layer) override;
  void Predict(ExpertLayerId layer, std::span<const ExpertId> experts) override;
  bool Prefetch(ExpertKey key) override;
  void Withdraw(ExpertKey key) override;
  void Release(ExpertKey key) override;
  bool is_complete(ExpertKey key) const override;

  bool is_done(const Prefetched& p) const;
  std::vector<Prefetched>::iterator Find(ExpertKey key);
  void Finish(const Asked& asked);
  void FinishAll(std::deque<Asked>& all);

  const Trace& trace_;
  const TraceInfo& info_;
  const ReplayOptions& options_;
  const SimPools& pools_;
  std::vector<SlotTable> tables_;  // by pool
  Machine machine_;
  double dense_seconds_;                    // of a layer's dense part
  double seconds_per_byte_;                 // of experts, to compute with them
  std::vector<std::vector<uint8_t>> uses_;  // [pool][slot]: since it was read, up to 2
  StepSize step_size_;
  std::optional<PrefetchPlanner> planner_;
  std::optional<LayerProtocol> protocol_;
  std::vector<Prefetched> prefetched_;  // oldest first
  LossyParts lossy_;
  std::deque<Asked> read_ahead_;  // a prompt's next layer
  LittleStep little_;             // the first pass; off: there is none
  LittleJudge judge_;
  bool counts_ = false;  // the step is not one that warms up
  std::vector<PredictionScore> uncounted_;
  PredictionScore uncounted_foreseen_;
  uint32_t look_ahead_ = 0;  // layers whose routers are evaluated in this step
  ReplayResult result_;
};

}  // namespace moestro
