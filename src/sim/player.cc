// SPDX-License-Identifier: MIT
#include "sim/player.h"

#include <algorithm>
#include <cmath>
#include <ranges>
#include <utility>
#include <vector>

#include "base/check.h"
#include "core/batch.h"
#include "core/routing.h"
#include "decide/layer/layer_planner.h"

namespace moestro {
namespace {

// Of computing with an expert's bytes, where none is missing.
double SecondsPerByte(const MachineCosts& costs, const MoeShape& shape, double mean_bytes) {
  const double token = mean_bytes * shape.n_layer * shape.n_used;
  return token > 0.0 ? costs.compute * costs.expert_share / token : 0.0;
}

}  // namespace

Player::Player(const Trace& trace, std::vector<SlotTable> tables, const ReplayOptions& options,
               const SimPools& pools)
    : trace_(trace),
      info_(trace.info()),
      options_(options),
      pools_(pools),
      tables_(std::move(tables)),
      machine_(options.costs),
      dense_seconds_(options.costs.compute * (1.0 - options.costs.expert_share) /
                     info_.shape().n_layer),
      seconds_per_byte_(SecondsPerByte(options.costs, info_.shape(), pools.mean_bytes())),
      step_size_{.prefill_chunk = std::max<size_t>(options.prefill_chunk, 1)},
      judge_(options.little) {
  for (SlotTable& table : tables_) {
    table.SetObserver(options.observer);
    uses_.emplace_back(table.slots());
  }
  if (options.has_little_pass()) {
    little_ = {.n_used = info_.little, .misses = options.little.misses};
  }
}

ReplayResult Player::Play(std::unique_ptr<Predictor> predictor) {
  const PredictorShape shape{.moe = info_.shape(), .depth = depth()};
  std::vector<uint64_t> slots;
  for (const SlotTable& table : tables_) slots.push_back(table.slots());
  planner_.emplace(std::move(predictor), shape,
                   PrefetchLimits{.slots = std::move(slots),
                                  .pool_of = [this](ExpertKey key) { return pools_.of(key); },
                                  .reads_at_device = options_.costs.io_depth,
                                  .is_fixed = lossy_.choices != nullptr},
                   [this](ExpertKey key) { return contains(key); });
  ExpertHolder& holder = *this;
  protocol_.emplace(*planner_, holder, info_.shape().n_layer, lossy_);
  for (size_t t = 0; t < trace_.tokens();) {
    if (t == 0 || trace_.starts_sequence(t)) BeginSequence();
    const auto tokens = std::views::iota(t, t + TokensOfStep(trace_, t, step_size_));
    const Pass step{.tokens = {tokens.begin(), tokens.end()}};
    const auto is_decode = [this](size_t row) { return trace_.phase(row) == Phase::kDecode; };
    if (std::ranges::any_of(tokens, is_decode)) {
      Decode(step);
    } else {
      Prefill(step);
    }
    t += tokens.size();
  }
  result_.predictions.assign(planner_->scores().begin(), planner_->scores().end());
  for (size_t i = 0; i < uncounted_.size(); ++i) {
    result_.predictions[i] = result_.predictions[i] - uncounted_[i];
  }
  result_.foreseen = planner_->foreseen_score() - uncounted_foreseen_;
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

LayerPlan Player::Plan(const Pass& pass, uint32_t layer) {
  Routing routing{.n_tokens = static_cast<uint32_t>(pass.tokens.size()),
                  .n_used = pass.is_little ? info_.little : info_.shape().n_used,
                  .experts = {},
                  .weights = {}};
  std::vector<RowKind> kinds;
  std::vector<ExpertId> predicted;
  std::vector<float> weights;  // of these
  for (const size_t t : pass.tokens) {
    if (pass.is_little) {
      routing.experts.append_range(trace_.little_experts(t, layer).first(routing.n_used));
      routing.weights.append_range(trace_.little_weights(t, layer));
    } else {
      routing.experts.append_range(trace_.experts(t, layer));
      routing.weights.append_range(trace_.weights(t, layer));
    }
    if (protocol_->candidates() > 0) {
      routing.candidates.per_row = info_.candidates();
      routing.candidates.Append(trace_.candidates(t, layer));
    }
    kinds.push_back(trace_.phase(t) == Phase::kDecode ? RowKind::kDecode : RowKind::kPrompt);
  }
  for (uint32_t d = 1; d <= look_ahead_; ++d) {
    for (const size_t t : pass.tokens) {
      predicted.append_range(pass.is_little ? trace_.little_predicted(t, layer, d)
                                            : trace_.predicted(t, layer, d));
      weights.append_range(pass.is_little ? trace_.little_predicted_weights(t, layer, d)
                                          : trace_.predicted_weights(t, layer, d));
    }
  }
  return protocol_->AfterRouting({.layer = ExpertLayerId{static_cast<uint16_t>(layer)},
                                  .routing = routing,
                                  .kinds = kinds,
                                  .predicted = predicted,
                                  .predicted_weights = weights});
}

void Player::Prefill(const Pass& pass) {
  look_ahead_ = 0;
  protocol_->BeginStep({});
  for (uint32_t l = 0; l < info_.shape().n_layer; ++l) PrefillLayer(pass, l);
}

void Player::PrefillLayer(const Pass& pass, uint32_t layer) {
  const LayerPlan plan = Plan(pass, layer);
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
  const ExpertLayerId id{static_cast<uint16_t>(layer)};
  protocol_->Prefetch();
  const std::vector<ExpertKey> next = PlanReadAhead(
      id, info_.shape().n_layer, info_.shape().n_expert, info_.shape().n_used, pass.tokens.size());
  size_t asked = 0;
  AskAhead(next, asked);
  FinishAll(held);
  AskAhead(next, asked);
}

void Player::AskAhead(std::span<const ExpertKey> keys, size_t& asked) {
  for (; asked < keys.size(); ++asked) {
    const std::optional<Placement> placed = table(keys[asked]).Request(keys[asked], Use::kPrefill);
    if (!placed) return;
    read_ahead_.push_back({keys[asked], *placed});
  }
}

void Player::Decode(const Pass& step) {
  counts_ = step.tokens.front() >= options_.count_from;
  const double before = machine_.now();
  const double waited = machine_.waited();
  const std::vector<ExpertCounts> before_stats = Stats();
  const LossCounts lost = protocol_->losses();
  const double read = machine_.bytes_read();
  double compute_seconds = options_.costs.compute;
  if (is_for_little(step)) {
    compute_seconds = DecodeLittleFirst(step);
  } else {
    protocol_->BeginStep({});
    DecodePass(step);
  }
  if (!counts_) {
    uncounted_.assign(planner_->scores().begin(), planner_->scores().end());
    uncounted_foreseen_ = planner_->foreseen_score();
    return;
  }
  result_.tokens += step.tokens.size();
  const std::vector<ExpertCounts> after = Stats();
  double needed = 0.0;  // bytes
  for (uint32_t pool = 0; pool < after.size(); ++pool) {
    needed += Count(before_stats[pool], after[pool]) * pools_.expert_bytes(pool);
  }
  result_.losses += protocol_->losses() - lost;
  result_.bytes += static_cast<uint64_t>(std::llround(machine_.bytes_read() - read));
  result_.seconds += machine_.now() - before;
  result_.bound_seconds += std::max(compute_seconds, machine_.SecondsToRead(needed));
  result_.stall_seconds += machine_.waited() - waited;
}

void Player::DecodePass(const Pass& pass) {
  const double before = machine_.now();
  look_ahead_ = planner_->look_ahead();
  StepCost cost;
  for (uint32_t l = 0; l < info_.shape().n_layer; ++l) DecodeLayer(pass, l, cost);
  CHECK(prefetched_.empty());
  cost.seconds = machine_.now() - before;
  planner_->StepDone(cost);
}

std::vector<ExpertCounts> Player::Stats() const {
  std::vector<ExpertCounts> all;
  for (const SlotTable& table : tables_) all.push_back(table.stats());
  return all;
}

double Player::Count(const ExpertCounts& before, const ExpertCounts& now) {
  const ExpertCounts did = now - before;
  ExpertCounts& all = result_;
  all += did;
  return static_cast<double>(did.absent() + did.used_prefetches);
}

void Player::DecodeLayer(const Pass& pass, uint32_t layer, StepCost& cost) {
  machine_.Compute(dense_seconds_, Machine::Reads::kStay);
  SettlePrefetched(layer);
  const LayerPlan plan = Plan(pass, layer);
  std::vector<Asked> asked;
  for (const PlannedExpert& expert : plan.experts) {
    const std::optional<Placement> placed =
        table(expert.key).Request(expert.key, expert.use, expert.n_pairs);
    CHECK(placed.has_value());  // Replay() has seen to enough slots
    for (const uint32_t other : pools_.of_layer(expert.key.layer)) {
      if (expert.use == Use::kDecode && other != pools_.of(expert.key)) {
        tables_[other].OtherCopyUsed(expert.key, expert.n_pairs);
      }
    }
    asked.push_back({expert.key, *placed, ReadsOf(expert.key, *placed)});
  }
  if (options_.fetches) protocol_->Prefetch();
  const double before = machine_.now();
  const auto is_missing = [this](const Asked& one) { return !has_all(one.reads); };
  machine_.Pump();
  const auto missing = static_cast<uint64_t>(std::ranges::count_if(asked, is_missing));
  cost.demand_reads += missing;
  const double landed = ComputeExperts(asked);
  if (missing > 0) {
    cost.demand_seconds += landed - before;
    machine_.Compute(options_.costs.layer_wait, Machine::Reads::kMove);
  }
  if (counts_) AddPenalty(asked);
  for (const Asked& one : asked) Finish(one);
  machine_.Pump();
}

double Player::ComputeExperts(std::vector<Asked> asked) {
  double landed = machine_.now();
  while (!asked.empty()) {
    const auto there =
        std::ranges::find_if(asked, [this](const Asked& one) { return has_all(one.reads); });
    if (there == asked.end()) {
      machine_.Wait();
      landed = machine_.now();
      continue;
    }
    machine_.Compute(ExpertSeconds(*there), Machine::Reads::kMove);
    asked.erase(there);
  }
  return landed;
}

double Player::ExpertSeconds(const Asked& expert) {
  const uint32_t pool = pools_.of(expert.key);
  const double seconds = pools_.expert_bytes(pool) * seconds_per_byte_;
  uint8_t& uses = uses_[pool][expert.placed.slot.value];
  const double more = uses == 0   ? options_.costs.first_use
                      : uses == 1 ? options_.costs.second_use
                                  : 0.0;
  if (uses < 2) ++uses;
  return seconds * (1.0 + more);
}

void Player::AddPenalty(std::span<const Asked> asked) {
  for (const Asked& one : asked) {
    if (one.placed.was == Placement::Was::kReady) continue;
    result_.penalty += one.key.copy == 0 || pools_.mean_bytes() <= 0.0
                           ? 1.0
                           : pools_.expert_bytes(pools_.of(one.key)) / pools_.mean_bytes();
  }
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

bool Player::is_for_little(const Pass& step) const {
  return little_.is_on() && std::ranges::all_of(step.tokens, [this](size_t t) {
           return trace_.phase(t) == Phase::kDecode;
         });
}

double Player::DecodeLittleFirst(const Pass& step) {
  protocol_->BeginStep(little_);
  DecodePass({.tokens = step.tokens, .is_little = true});
  double seconds = ComputeSeconds(info_.little);
  Pass again;
  for (const size_t t : step.tokens) {
    if (!judge_.Keeps(trace_.confidence(t))) again.tokens.push_back(t);
  }
  if (counts_) {
    result_.again += again.tokens.size();
    result_.kept += step.tokens.size() - again.tokens.size();
  }
  if (again.tokens.empty()) return seconds;
  DecodeAgain(again);
  return seconds + ComputeSeconds(info_.shape().n_used);
}

void Player::DecodeAgain(const Pass& again) {
  std::vector<std::vector<ExpertId>> foreseen(info_.shape().n_layer);  // [layer][row][K]
  for (size_t l = 0; l < foreseen.size(); ++l) {
    for (const size_t t : again.tokens) foreseen[l].append_range(trace_.little_experts(t, l));
  }
  protocol_->BeginStep({});
  if (options_.fetches) {
    protocol_->Foresee(foreseen, static_cast<uint32_t>(again.tokens.size()));
    machine_.Pump();
  }
  DecodePass(again);
}

double Player::ComputeSeconds(uint32_t n_used) const {
  const double left_out = 1.0 - static_cast<double>(n_used) / info_.shape().n_used;
  return options_.costs.compute * (1.0 - options_.costs.expert_share * left_out);
}

void Player::SettlePrefetched(uint32_t layer) {
  for (Prefetched& p : prefetched_) {
    if (p.key.layer.value != layer || p.is_ready || !is_done(p)) continue;
    table(p.key).Landed(p.slot);
    p.is_ready = true;
  }
}

std::vector<Machine::Ticket> Player::ReadsOf(const ExpertKey& key, const Placement& placed) {
  if (placed.was == Placement::Was::kReady) return {};
  if (placed.was == Placement::Was::kAbsent) {
    uses_[pools_.of(key)][placed.slot.value] = 0;
    return Read(key, true);
  }
  const Prefetched& p = *Find(key);
  for (const Machine::Ticket read : p.reads) machine_.Promote(read);
  return p.reads;
}

std::vector<Machine::Ticket> Player::Read(ExpertKey key, bool is_urgent) {
  std::vector<Machine::Ticket> reads;
  for (const double bytes : pools_.matrices(pools_.of(key))) {
    reads.push_back(machine_.Read(bytes, is_urgent));
  }
  return reads;
}

bool Player::has_all(std::span<const Machine::Ticket> reads) const {
  return std::ranges::all_of(reads,
                             [this](Machine::Ticket read) { return machine_.is_done(read); });
}

void Player::BeginLayer(ExpertLayerId layer) {
  for (SlotTable& table : tables_) table.BeginLayer(layer);
}

void Player::Predict(ExpertLayerId layer, std::span<const ExpertId> experts) {
  for (const uint32_t pool : pools_.of_layer(layer)) tables_[pool].Predict(layer, experts);
}

bool Player::Prefetch(ExpertKey key) {
  const std::optional<Placement> placed = table(key).Request(key, Use::kPrefetch);
  if (!placed) return false;
  const bool is_absent = placed->was == Placement::Was::kAbsent;
  if (is_absent) uses_[pools_.of(key)][placed->slot.value] = 0;
  prefetched_.push_back({.key = key,
                         .slot = placed->slot,
                         .is_ready = !is_absent,
                         .reads = is_absent ? Read(key, false) : std::vector<Machine::Ticket>()});
  return true;
}

void Player::Withdraw(ExpertKey key) {
  const auto p = Find(key);
  bool is_cut = false;
  for (const Machine::Ticket read : p->reads) is_cut = machine_.Cancel(read) || is_cut;
  if (is_cut) {
    table(key).Failed(p->slot);
  } else if (!p->is_ready) {
    table(key).Landed(p->slot);
  }
  table(key).Unpin(p->slot);
  prefetched_.erase(p);
}

// What no layer took over goes on being read.
void Player::Release(ExpertKey key) {
  const auto p = Find(key);
  if (!p->is_ready) table(key).Landed(p->slot);
  table(key).Unpin(p->slot);
  prefetched_.erase(p);
}

bool Player::is_complete(ExpertKey key) const {
  return is_done(*std::ranges::find(prefetched_, key, &Prefetched::key));
}

bool Player::is_done(const Prefetched& p) const { return has_all(p.reads); }

std::vector<Prefetched>::iterator Player::Find(ExpertKey key) {
  const auto p = std::ranges::find(prefetched_, key, &Prefetched::key);
  CHECK(p != prefetched_.end());
  return p;
}

}  // namespace moestro
