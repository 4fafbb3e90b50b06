// SPDX-License-Identifier: MIT
#include "sim/player.h"

#include <algorithm>
#include <ranges>
#include <utility>

#include "base/check.h"
#include "core/batch.h"
#include "core/routing.h"
#include "decide/layer_planner.h"

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

}  // namespace

Player::Player(const Trace& trace, std::vector<SlotTable> tables, const ReplayOptions& options,
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

ReplayResult Player::Play(std::unique_ptr<Predictor> predictor) {
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

uint32_t Player::depth() const {
  const uint32_t wanted = options_.depth > 0 ? options_.depth : std::max(info_.depth, 1U);
  return std::clamp(wanted, 1U, std::max(info_.shape().n_layer - 1, 1U));
}

void Player::BeginSequence() {
  for (SlotTable& table : tables_) table.BeginSequence();
  protocol_->BeginSequence();
}

size_t Player::RowsOfStep(size_t first) const {
  size_t n = 1;
  while (first + n < trace_.tokens() && trace_.joins_step(first + n)) ++n;
  if (n > 1 || trace_.phase(first) != Phase::kPrefill) return n;
  while (n < chunk_ && first + n < trace_.tokens() && !trace_.starts_sequence(first + n) &&
         trace_.phase(first + n) == Phase::kPrefill) {
    ++n;
  }
  return n;
}

LayerPlan Player::Plan(size_t first, size_t rows, uint32_t layer) {
  Routing routing{.n_tokens = static_cast<uint32_t>(rows),
                  .n_used = info_.shape().n_used,
                  .experts = {},
                  .weights = {}};
  std::vector<RowKind> kinds;
  std::vector<ExpertId> predicted;
  for (size_t t = first; t < first + rows; ++t) {
    routing.experts.append_range(trace_.experts(t, layer));
    routing.weights.append_range(trace_.weights(t, layer));
    if (protocol_->candidates() > 0) {
      routing.candidates.per_row = info_.candidates();
      routing.candidates.Append(trace_.candidates(t, layer));
    }
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

void Player::Prefill(size_t first, size_t rows, uint32_t layer) {
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
  const std::vector<ExpertKey> next =
      PlanReadAhead(id, info_.shape().n_layer, info_.shape().n_expert, info_.shape().n_used, rows);
  size_t asked = 0;
  AskAhead(next, asked);
  FinishAll(held);
  AskAhead(next, asked);
}

void Player::AskAhead(std::span<const ExpertKey> keys, size_t& asked) {
  for (; asked < keys.size(); ++asked) {
    const std::optional<Placement> placed = tables_[0].Request(keys[asked], Use::kPrefill);
    if (!placed) return;
    read_ahead_.push_back({keys[asked], *placed});
  }
}

void Player::Decode(size_t first, size_t rows) {
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

std::vector<TableStats> Player::Stats() const {
  std::vector<TableStats> all;
  for (const SlotTable& table : tables_) all.push_back(table.stats());
  return all;
}

double Player::Count(const TableStats& before, const TableStats& now) {
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

void Player::DecodeLayer(size_t first, size_t rows, uint32_t layer, StepCost& cost) {
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

void Player::AddPenalty(std::span<const Asked> asked) {
  for (const Asked& one : asked) {
    if (one.placed.was != Placement::Was::kReady) result_.penalty += size_of(one.key);
  }
}

void Player::SettlePrefetched(uint32_t layer) {
  for (Prefetched& p : prefetched_) {
    if (p.key.layer.value != layer || p.is_ready || !is_done(p)) continue;
    table(p.key).Landed(p.slot);
    p.is_ready = true;
  }
}

double Player::ArrivalOf(const ExpertKey& key, const Placement& placed) {
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

void Player::ReadPrefetched() {
  for (Prefetched& p : prefetched_) {
    while (p.parts_left > 0 && machine_.has_room()) {
      p.arrives = machine_.ReadWaiting(p.since, size_of(p.key));
      --p.parts_left;
    }
  }
}

void Player::BeginLayer(LayerId layer) {
  for (SlotTable& table : tables_) table.BeginLayer(layer);
}

void Player::Predict(LayerId layer, std::span<const ExpertId> experts) {
  for (SlotTable& table : tables_) table.Predict(layer, experts);
}

bool Player::Prefetch(ExpertKey key) {
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

void Player::Withdraw(ExpertKey key) {
  const auto p = Find(key);
  if (p->parts_left > 0) {
    table(key).Failed(p->slot);
  } else if (!p->is_ready) {
    table(key).Landed(p->slot);
  }
  table(key).Unpin(p->slot);
  prefetched_.erase(p);
}

void Player::Release(ExpertKey key) {
  const auto p = Find(key);
  // What nobody took over goes on being read.
  for (; p->parts_left > 0; --p->parts_left) {
    p->arrives = machine_.ReadWaiting(p->since, size_of(key));
  }
  if (!p->is_ready) table(key).Landed(p->slot);
  table(key).Unpin(p->slot);
  prefetched_.erase(p);
}

bool Player::is_complete(ExpertKey key) const {
  return is_done(*std::ranges::find(prefetched_, key, &Prefetched::key));
}

bool Player::is_done(const Prefetched& p) const {
  return p.parts_left == 0 && p.arrives <= machine_.now();
}

std::vector<Prefetched>::iterator Player::Find(ExpertKey key) {
  const auto p = std::ranges::find(prefetched_, key, &Prefetched::key);
  CHECK(p != prefetched_.end());
  return p;
}

void Player::Finish(const Asked& asked) {
  SlotTable& its = table(asked.key);
  if (asked.placed.was == Placement::Was::kAbsent) its.Landed(asked.placed.slot);
  its.Unpin(asked.placed.slot);
}

void Player::FinishAll(std::deque<Asked>& all) {
  for (const Asked& one : all) Finish(one);
  all.clear();
}

}  // namespace moestro
