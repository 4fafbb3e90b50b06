// SPDX-License-Identifier: MIT
// A trace's steps through the engine's own LayerProtocol, against a pretend disk and processor.
// Used by replay.cc alone.
#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "core/ids.h"
#include "core/layer_plan.h"
#include "decide/layer_planner.h"
#include "decide/layer_protocol.h"
#include "decide/predictor.h"
#include "sim/machine.h"
#include "sim/replay.h"

namespace moestro {

inline Machine::Speeds SpeedsOf(const ReplayOptions& options, const TraceInfo& info,
                                uint64_t bytes) {
  const double expert_seconds = options.compute_seconds * options.expert_share;
  const double read =
      options.bandwidth > 0.0 ? static_cast<double>(bytes) / options.bandwidth : 0.0;
  return {.dense = (options.compute_seconds - expert_seconds) / info.shape().n_layer,
          .expert = expert_seconds / info.shape().n_layer / info.shape().n_used,
          .part = read / kMatrices};
}

// An expert that was prefetched for a later layer, pinned until that layer has run.
struct Prefetched {
  ExpertKey key;
  SlotId slot;
  bool is_ready = true;
  size_t parts_left = 0;  // not handed to the disk
  double since = 0.0;     // when it was asked for
  double arrives = 0.0;   // the last part handed out
};

// An expert that was asked for.
struct Asked {
  ExpertKey key;
  Placement placed;
};

// Runs the steps of a trace through the engine's own LayerProtocol. An expert costs the same time
// for any number of rows of a step.
class Player final : private ExpertHolder {
 public:
  // `tables` by copy.
  Player(const Trace& trace, std::vector<SlotTable> tables, const ReplayOptions& options,
         uint64_t expert_bytes)
      : trace_(trace),
        info_(trace.info()),
        options_(options),
        tables_(std::move(tables)),
        expert_bytes_(expert_bytes),
        machine_(SpeedsOf(options, trace.info(), expert_bytes)),
        low_size_(static_cast<double>(options.low_bytes) /
                  static_cast<double>(std::max<uint64_t>(expert_bytes, 1))),
        chunk_(std::max<size_t>(options.prefill_chunk, 1)) {
    for (SlotTable& table : tables_) table.SetObserver(options.observer);
  }

  // Lossy choices; the parts must outlive this.
  void MakeLossy(const LossyParts& lossy) { lossy_ = lossy; }

  ReplayResult Play(std::unique_ptr<Predictor> predictor) {
    const PredictorShape shape{.moe = info_.shape(), .depth = depth()};
    std::vector<uint64_t> slots;
    for (const SlotTable& table : tables_) slots.push_back(table.slots());
    planner_.emplace(std::move(predictor), shape,
                     PrefetchLimits{.slots = std::move(slots),
                                    .pool_of = [](ExpertKey key) { return uint32_t{key.copy}; },
                                    .reads_at_device = Machine::kInFlight,
                                    .is_fixed = lossy_.choices != nullptr},
                     [this](ExpertKey key) { return contains(key); });
    ExpertHolder& holder = *this;
    protocol_.emplace(*planner_, holder, info_.shape().n_layer, lossy_);
    for (size_t t = 0; t < trace_.tokens();) {
      if (t == 0 || trace_.starts_sequence(t)) BeginSequence();
      const size_t rows = RowsOfStep(t);
      const auto is_decode = [this](size_t row) { return trace_.phase(row) == Phase::kDecode; };
      if (std::ranges::any_of(std::views::iota(t, t + rows), is_decode)) {
        Decode(t, rows);
      } else {
        for (uint32_t l = 0; l < info_.shape().n_layer; ++l) Prefill(t, rows, l);
      }
      t += rows;
    }
    result_.predictions.assign(planner_->scores().begin(), planner_->scores().end());
    for (size_t i = 0; i < uncounted_.size(); ++i) {
      result_.predictions[i] = result_.predictions[i] - uncounted_[i];
    }
    return result_;
  }

 private:
  uint32_t depth() const {
    const uint32_t wanted = options_.depth > 0 ? options_.depth : std::max(info_.depth, 1U);
    return std::clamp(wanted, 1U, std::max(info_.shape().n_layer - 1, 1U));
  }
  SlotTable& table(ExpertKey key) { return tables_[key.copy]; }
  double size_of(ExpertKey key) const { return key.copy == 0 ? 1.0 : low_size_; }

  void BeginSequence() {
    for (SlotTable& table : tables_) table.BeginSequence();
    protocol_->BeginSequence();
  }

  // The tokens computed together with `first`: those recorded so, or what is left of this prefill,
  // at most chunk_.
  size_t RowsOfStep(size_t first) const {
    size_t n = 1;
    while (first + n < trace_.tokens() && trace_.joins_step(first + n)) ++n;
    if (n > 1 || trace_.phase(first) != Phase::kPrefill) return n;
    while (n < chunk_ && first + n < trace_.tokens() && !trace_.starts_sequence(first + n) &&
           trace_.phase(first + n) == Phase::kPrefill) {
      ++n;
    }
    return n;
  }

  // What routing the rows of a step did at a layer -> the plan.
  LayerPlan Plan(size_t first, size_t rows, uint32_t layer) {
    Routing routing{.n_tokens = static_cast<uint32_t>(rows),
                    .n_used = info_.shape().n_used,
                    .experts = {},
                    .weights = {}};
    std::vector<RowKind> kinds;
    std::vector<ExpertId> predicted;
    for (size_t t = first; t < first + rows; ++t) {
      routing.experts.append_range(trace_.experts(t, layer));
      routing.weights.append_range(trace_.weights(t, layer));
      if (protocol_->candidates() > 0) AddCandidates(trace_.candidates(t, layer), routing);
      kinds.push_back(trace_.phase(t) == Phase::kDecode ? RowKind::kDecode : RowKind::kPrompt);
    }
    for (uint32_t d = 1; d <= look_ahead_; ++d) {
      for (size_t t = first; t < first + rows; ++t) {
        predicted.append_range(trace_.predicted(t, layer, d));
      }
    }
    return protocol_->AfterRouting({.layer = LayerId{static_cast<uint16_t>(layer)},
                                    .routing = routing,
                                    .kinds = kinds,
                                    .predicted = predicted});
  }

  void AddCandidates(const TraceCandidates& of_row, Routing& routing) const {
    routing.candidates.per_row = info_.candidates();
    routing.candidates.experts.append_range(of_row.experts);
    routing.candidates.scores.append_range(of_row.scores);
    routing.candidates.raw.append_range(of_row.raw);
    routing.candidates.ranges.append_range(of_row.ranges);
  }

  // A layer of a prompt: as many experts at a time as there is room for, then the next layer's.
  void Prefill(size_t first, size_t rows, uint32_t layer) {
    look_ahead_ = 0;
    const LayerPlan plan = Plan(first, rows, layer);
    std::deque<Asked> held;
    for (const PlannedExpert& expert : plan.experts) {
      SlotTable& its = table(expert.key);
      std::optional<Placement> placed = its.Request(expert.key, expert.use, expert.n_pairs);
      while (!placed) {
        CHECK(!held.empty() || !read_ahead_.empty());
        std::deque<Asked>& oldest = held.empty() ? read_ahead_ : held;
        Finish(oldest.front());
        oldest.pop_front();
        placed = its.Request(expert.key, expert.use, expert.n_pairs);
      }
      held.push_back({expert.key, *placed});
    }
    FinishAll(read_ahead_);
    const LayerId id{static_cast<uint16_t>(layer)};
    protocol_->Prefetch();
    const std::vector<ExpertKey> next = PlanReadAhead(
        id, info_.shape().n_layer, info_.shape().n_expert, info_.shape().n_used, rows);
    size_t asked = 0;
    AskAhead(next, asked);
    FinishAll(held);
    AskAhead(next, asked);
  }

  void AskAhead(std::span<const ExpertKey> keys, size_t& asked) {
    for (; asked < keys.size(); ++asked) {
      const std::optional<Placement> placed = tables_[0].Request(keys[asked], Use::kPrefill);
      if (!placed) return;
      read_ahead_.push_back({keys[asked], *placed});
    }
  }

  void Decode(size_t first, size_t rows) {
    const double before = machine_.now();
    const double waited = machine_.waited();
    const std::vector<TableStats> before_stats = Stats();
    const LossCounts lost = protocol_->losses();
    const double parts = machine_.parts_read();
    look_ahead_ = planner_->look_ahead();
    StepCost cost;
    for (uint32_t l = 0; l < info_.shape().n_layer; ++l) DecodeLayer(first, rows, l, cost);
    CHECK(prefetched_.empty());
    cost.seconds = machine_.now() - before;
    planner_->StepDone(cost);
    if (first < options_.count_from) {
      uncounted_.assign(planner_->scores().begin(), planner_->scores().end());
      return;
    }
    result_.tokens += rows;
    const std::vector<TableStats> after = Stats();
    double needed = 0.0;  // experts' worth of reads
    for (size_t copy = 0; copy < after.size(); ++copy) {
      needed += Count(before_stats[copy], after[copy]) * (copy == 0 ? 1.0 : low_size_);
    }
    result_.losses += protocol_->losses().Since(lost);
    result_.bytes += static_cast<uint64_t>((machine_.parts_read() - parts) *
                                           static_cast<double>(expert_bytes_) / kMatrices);
    result_.seconds += machine_.now() - before;
    result_.bound_seconds +=
        std::max(options_.compute_seconds, machine_.SecondsToRead(needed * kMatrices));
    result_.stall_seconds += machine_.waited() - waited;
  }

  std::vector<TableStats> Stats() const {
    std::vector<TableStats> all;
    for (const SlotTable& table : tables_) all.push_back(table.stats());
    return all;
  }

  // Adds what one table did in a step; gives how many of its experts had to be read.
  double Count(const TableStats& before, const TableStats& now) {
    result_.requests += now.requests - before.requests;
    result_.hits += now.hits - before.hits;
    result_.misses += now.misses + now.late - before.misses - before.late;
    result_.late += now.late - before.late;
    result_.evictions += now.evictions - before.evictions;
    result_.prefetches += now.prefetches - before.prefetches;
    result_.used_prefetches += now.used_prefetches - before.used_prefetches;
    return static_cast<double>(now.misses + now.used_prefetches - before.misses -
                               before.used_prefetches);
  }

  void DecodeLayer(size_t first, size_t rows, uint32_t layer, StepCost& cost) {
    machine_.ComputeDense();
    SettlePrefetched(layer);
    const LayerPlan plan = Plan(first, rows, layer);
    std::vector<Asked> asked;
    std::vector<double> arrivals;
    for (const PlannedExpert& expert : plan.experts) {
      const std::optional<Placement> placed =
          table(expert.key).Request(expert.key, expert.use, expert.n_pairs);
      CHECK(placed.has_value());  // Replay() has seen to enough slots
      for (SlotTable& other : tables_) {
        if (expert.use == Use::kDecode && &other != &table(expert.key)) {
          other.OtherCopyUsed(expert.key, expert.n_pairs);
        }
      }
      asked.push_back({expert.key, *placed});
      arrivals.push_back(ArrivalOf(expert.key, *placed));
    }
    if (options_.fetches) protocol_->Prefetch();
    std::ranges::sort(arrivals);
    if (!arrivals.empty()) {
      cost.demand_seconds += std::max(0.0, arrivals.back() - machine_.now());
    }
    cost.demand_reads += static_cast<uint64_t>(
        std::ranges::count_if(arrivals, [this](double a) { return a > machine_.now(); }));
    for (const double arrival : arrivals) machine_.ComputeExpert(arrival);
    if (first >= options_.count_from) AddPenalty(asked);
    for (const Asked& one : asked) Finish(one);
    ReadPrefetched();
  }

  void AddPenalty(std::span<const Asked> asked) {
    for (const Asked& one : asked) {
      if (one.placed.was != Placement::Was::kReady) result_.penalty += size_of(one.key);
    }
  }

  // Of what was prefetched for a layer: complete ones become ready.
  void SettlePrefetched(uint32_t layer) {
    for (Prefetched& p : prefetched_) {
      if (p.key.layer.value != layer || p.is_ready || !is_done(p)) continue;
      table(p.key).Landed(p.slot);
      p.is_ready = true;
    }
  }

  // When an expert that has just been asked for is there.
  double ArrivalOf(const ExpertKey& key, const Placement& placed) {
    if (placed.was == Placement::Was::kReady) return 0.0;
    size_t parts = kMatrices;
    double arrives = 0.0;
    if (placed.was == Placement::Was::kLoading) {
      Prefetched& p = *Find(key);
      parts = std::exchange(p.parts_left, 0);
      arrives = p.arrives;
    }
    for (; parts > 0; --parts) arrives = machine_.Read(size_of(key));
    return arrives;
  }

  // What the disk did for prefetches since it had nothing urgent to do.
  void ReadPrefetched() {
    for (Prefetched& p : prefetched_) {
      while (p.parts_left > 0 && machine_.has_room()) {
        p.arrives = machine_.ReadWaiting(p.since, size_of(p.key));
        --p.parts_left;
      }
    }
  }

  bool contains(ExpertKey key) const override { return tables_[key.copy].contains(key); }
  void BeginLayer(LayerId layer) override {
    for (SlotTable& table : tables_) table.BeginLayer(layer);
  }
  void Predict(LayerId layer, std::span<const ExpertId> experts) override {
    for (SlotTable& table : tables_) table.Predict(layer, experts);
  }
  bool Prefetch(ExpertKey key) override {
    const std::optional<Placement> placed = table(key).Request(key, Use::kPrefetch);
    if (!placed) return false;
    const bool is_absent = placed->was == Placement::Was::kAbsent;
    prefetched_.push_back({.key = key,
                           .slot = placed->slot,
                           .is_ready = !is_absent,
                           .parts_left = is_absent ? kMatrices : 0,
                           .since = machine_.now()});
    return true;
  }
  void Withdraw(ExpertKey key) override {
    const auto p = Find(key);
    if (p->parts_left > 0) {
      table(key).Failed(p->slot);
    } else if (!p->is_ready) {
      table(key).Landed(p->slot);
    }
    table(key).Unpin(p->slot);
    prefetched_.erase(p);
  }
  void Release(ExpertKey key) override {
    const auto p = Find(key);
    // What nobody took over goes on being read.
    for (; p->parts_left > 0; --p->parts_left) {
      p->arrives = machine_.ReadWaiting(p->since, size_of(key));
    }
    if (!p->is_ready) table(key).Landed(p->slot);
    table(key).Unpin(p->slot);
    prefetched_.erase(p);
  }
  bool is_complete(ExpertKey key) const override {
    return is_done(*std::ranges::find(prefetched_, key, &Prefetched::key));
  }

  bool is_done(const Prefetched& p) const {
    return p.parts_left == 0 && p.arrives <= machine_.now();
  }
  std::vector<Prefetched>::iterator Find(ExpertKey key) {
    const auto p = std::ranges::find(prefetched_, key, &Prefetched::key);
    CHECK(p != prefetched_.end());
    return p;
  }
  void Finish(const Asked& asked) {
    SlotTable& its = table(asked.key);
    if (asked.placed.was == Placement::Was::kAbsent) its.Landed(asked.placed.slot);
    its.Unpin(asked.placed.slot);
  }
  void FinishAll(std::deque<Asked>& all) {
    for (const Asked& one : all) Finish(one);
    all.clear();
  }

  const Trace& trace_;
  const TraceInfo& info_;
  const ReplayOptions& options_;
  std::vector<SlotTable> tables_;  // by copy
  uint64_t expert_bytes_;
  Machine machine_;
  double low_size_;  // of a low copy, in experts' worth of bytes
  size_t chunk_;
  std::optional<PrefetchPlanner> planner_;
  std::optional<LayerProtocol> protocol_;
  std::vector<Prefetched> prefetched_;  // oldest first
  LossyParts lossy_;
  std::deque<Asked> read_ahead_;  // a prompt's next layer
  std::vector<PredictionScore> uncounted_;
  uint32_t look_ahead_ = 0;  // layers whose routers are evaluated in this step
  ReplayResult result_;
};

}  // namespace moestro
