// SPDX-License-Identifier: MIT
#include "sim/replay.h"

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
#include "sim/belady.h"
#include "sim/machine.h"
#include "sim/oracle.h"

namespace moestro {
namespace {

Machine::Speeds SpeedsOf(const ReplayOptions& options, const TraceInfo& info, uint64_t bytes) {
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

// Runs the steps of a trace through the engine's own LayerProtocol. An expert costs the same time
// for any number of rows of a step.
class Player final : private ExpertHolder {
 public:
  Player(const Trace& trace, SlotTable table, const ReplayOptions& options, uint64_t expert_bytes)
      : trace_(trace),
        info_(trace.info()),
        options_(options),
        table_(std::move(table)),
        expert_bytes_(expert_bytes),
        machine_(SpeedsOf(options, trace.info(), expert_bytes)),
        chunk_(std::max<size_t>(options.prefill_chunk, 1)) {
    table_.SetObserver(options.observer);
  }

  ReplayResult Play(std::unique_ptr<Predictor> predictor) {
    const PredictorShape shape{.moe = info_.shape(), .depth = depth()};
    planner_.emplace(
        std::move(predictor), shape,
        PrefetchLimits{.slots = {table_.slots()}, .reads_at_device = Machine::kInFlight},
        [this](ExpertKey key) { return table_.contains(key); });
    ExpertHolder& holder = *this;
    protocol_.emplace(*planner_, holder, info_.shape().n_layer);
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
  void BeginSequence() {
    table_.BeginSequence();
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

  // A layer of a prompt: as many experts at a time as there is room for, then the next layer's.
  void Prefill(size_t first, size_t rows, uint32_t layer) {
    look_ahead_ = 0;
    const LayerPlan plan = Plan(first, rows, layer);
    std::deque<Placement> held;
    for (const PlannedExpert& expert : plan.experts) {
      std::optional<Placement> placed = table_.Request(expert.key, expert.use, expert.n_pairs);
      while (!placed) {
        CHECK(!held.empty() || !read_ahead_.empty());
        std::deque<Placement>& oldest = held.empty() ? read_ahead_ : held;
        Finish(oldest.front());
        oldest.pop_front();
        placed = table_.Request(expert.key, expert.use, expert.n_pairs);
      }
      held.push_back(*placed);
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
      const std::optional<Placement> placed = table_.Request(keys[asked], Use::kPrefill);
      if (!placed) return;
      read_ahead_.push_back(*placed);
    }
  }

  void Decode(size_t first, size_t rows) {
    const double before = machine_.now();
    const double waited = machine_.waited();
    const TableStats stats = table_.stats();
    const uint64_t parts = machine_.parts_read();
    look_ahead_ = planner_->look_ahead();
    StepCost cost;
    for (uint32_t l = 0; l < info_.shape().n_layer; ++l) DecodeLayer(first, rows, l, cost);
    CHECK(prefetched_.empty());
    const TableStats& now = table_.stats();
    cost.seconds = machine_.now() - before;
    planner_->StepDone(cost);
    if (first < options_.count_from) {
      uncounted_.assign(planner_->scores().begin(), planner_->scores().end());
      return;
    }
    result_.tokens += rows;
    result_.requests += now.requests - stats.requests;
    result_.hits += now.hits - stats.hits;
    result_.misses += now.misses + now.late - stats.misses - stats.late;
    result_.late += now.late - stats.late;
    result_.evictions += now.evictions - stats.evictions;
    result_.prefetches += now.prefetches - stats.prefetches;
    result_.used_prefetches += now.used_prefetches - stats.used_prefetches;
    result_.bytes += (machine_.parts_read() - parts) * expert_bytes_ / kMatrices;
    result_.seconds += machine_.now() - before;
    const uint64_t needed = now.misses + now.used_prefetches - stats.misses - stats.used_prefetches;
    result_.bound_seconds +=
        std::max(options_.compute_seconds, machine_.SecondsToRead(needed * kMatrices));
    result_.stall_seconds += machine_.waited() - waited;
  }

  void DecodeLayer(size_t first, size_t rows, uint32_t layer, StepCost& cost) {
    machine_.ComputeDense();
    SettlePrefetched(layer);
    const LayerPlan plan = Plan(first, rows, layer);
    std::vector<Placement> placements;
    std::vector<double> arrivals;
    for (const PlannedExpert& expert : plan.experts) {
      const std::optional<Placement> placed =
          table_.Request(expert.key, expert.use, expert.n_pairs);
      CHECK(placed.has_value());  // Replay() has seen to enough slots
      placements.push_back(*placed);
      arrivals.push_back(ArrivalOf(expert.key, *placed));
    }
    if (options_.fetches) protocol_->Prefetch();
    std::ranges::sort(arrivals);
    cost.demand_seconds += std::max(0.0, arrivals.back() - machine_.now());
    cost.demand_reads += static_cast<uint64_t>(
        std::ranges::count_if(arrivals, [this](double a) { return a > machine_.now(); }));
    for (const double arrival : arrivals) machine_.ComputeExpert(arrival);
    for (const Placement& placed : placements) Finish(placed);
    ReadPrefetched();
  }

  // Of what was prefetched for a layer: complete ones become ready.
  void SettlePrefetched(uint32_t layer) {
    for (Prefetched& p : prefetched_) {
      if (p.key.layer.value != layer || p.is_ready || !is_done(p)) continue;
      table_.Landed(p.slot);
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
    for (; parts > 0; --parts) arrives = machine_.Read();
    return arrives;
  }

  // What the disk did for prefetches since it had nothing urgent to do.
  void ReadPrefetched() {
    for (Prefetched& p : prefetched_) {
      while (p.parts_left > 0 && machine_.has_room()) {
        p.arrives = machine_.ReadWaiting(p.since);
        --p.parts_left;
      }
    }
  }

  bool contains(ExpertKey key) const override { return table_.contains(key); }
  void BeginLayer(LayerId layer) override { table_.BeginLayer(layer); }
  void Predict(LayerId layer, std::span<const ExpertId> experts) override {
    table_.Predict(layer, experts);
  }
  bool Prefetch(ExpertKey key) override {
    const std::optional<Placement> placed = table_.Request(key, Use::kPrefetch);
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
      table_.Failed(p->slot);
    } else if (!p->is_ready) {
      table_.Landed(p->slot);
    }
    table_.Unpin(p->slot);
    prefetched_.erase(p);
  }
  void Release(ExpertKey key) override {
    const auto p = Find(key);
    if (!p->is_ready) table_.Landed(p->slot);
    table_.Unpin(p->slot);
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
  void Finish(const Placement& placed) {
    if (placed.was == Placement::Was::kAbsent) table_.Landed(placed.slot);
    table_.Unpin(placed.slot);
  }
  void FinishAll(std::deque<Placement>& placements) {
    for (const Placement& placed : placements) Finish(placed);
    placements.clear();
  }

  const Trace& trace_;
  const TraceInfo& info_;
  const ReplayOptions& options_;
  SlotTable table_;
  uint64_t expert_bytes_;
  Machine machine_;
  size_t chunk_;
  std::optional<PrefetchPlanner> planner_;
  std::optional<LayerProtocol> protocol_;
  std::vector<Prefetched> prefetched_;  // oldest first
  std::deque<Placement> read_ahead_;    // a prompt's next layer
  std::vector<PredictionScore> uncounted_;
  uint32_t look_ahead_ = 0;  // layers whose routers are evaluated in this step
  ReplayResult result_;
};

}  // namespace

Result<ReplayResult> Replay(const Trace& trace, const ReplayOptions& options) {
  const TraceInfo& info = trace.info();
  if (options.slots < info.shape().n_used) {
    return Fail(Errc::kUsage, "{} slots do not hold the {} experts that a token uses in one layer",
                options.slots, info.shape().n_used);
  }
  std::unique_ptr<Policy> policy;
  if (options.policy.name == "belady") {
    policy = std::make_unique<BeladyPolicy>(trace);
  } else {
    TRY(policy, MakePolicy(options.policy));
  }
  std::unique_ptr<Predictor> predictor;
  if (options.predictor.name == "oracle") {
    predictor = std::make_unique<OraclePredictor>(trace);
  } else {
    TRY(predictor, MakePredictor(options.predictor));
  }
  const bool needs_more = options.depth > info.depth || info.depth == 0;
  if (predictor->wants_ahead() && needs_more) {
    return Fail(Errc::kUsage,
                "the trace predicts {} layers ahead, '{}' needs {}: record it with 'moestro trace "
                "--prefetch {}'",
                info.depth, options.predictor.name, std::max(options.depth, 1U),
                std::max(options.depth, 1U));
  }
  const PolicyShape shape{
      .slots = options.slots, .layers = info.shape().n_layer, .experts = info.shape().n_expert};
  const uint64_t bytes = options.expert_bytes > 0 ? options.expert_bytes : info.expert_bytes;
  return Player(trace, SlotTable(shape, std::move(policy)), options, bytes)
      .Play(std::move(predictor));
}

}  // namespace moestro
