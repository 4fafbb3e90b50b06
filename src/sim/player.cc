// SPDX-License-Identifier: MIT
#include "sim/player.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <ranges>
#include <utility>
#include <vector>

#include "base/result.h"
#include "core/batch.h"
#include "decide/layer/layer_planner.h"

namespace moestro {
namespace {

// Seconds of computing with a byte of an expert, with all experts in memory.
double SecondsPerByte(const MachineCosts& costs, const MoeShape& shape, double mean_bytes) {
  const double token = mean_bytes * shape.decode_layers().size() * shape.n_used;
  return token > 0.0 ? costs.compute * costs.expert_share / token : 0.0;
}

// Costs of the clock. With lanes the disk has the speed that plans assume.
MachineCosts ClockOf(const ReplayOptions& options) {
  MachineCosts costs = options.costs;
  if (!options.lanes) return costs;
  const Cost& disk = options.lanes->model.disk;
  costs.bandwidth = disk.per_byte > 0.0 ? 1.0 / disk.per_byte : 0.0;
  costs.read_latency = 0.0;  // the seconds of each expert's reads include it
  return costs;
}

}  // namespace

Player::Player(const Trace& trace, std::vector<SlotTable> tables, const ReplayOptions& options,
               const SimPools& pools)
    : trace_(trace),
      info_(trace.info()),
      options_(options),
      pools_(pools),
      machine_(ClockOf(options)),
      memory_(std::move(tables), pools, machine_,
              options.lanes ? options.lanes->model.disk.base : 0.0),
      dense_seconds_(options.costs.compute * (1.0 - options.costs.expert_share) /
                     info_.shape().decode_layers().size()),
      seconds_per_byte_(SecondsPerByte(options.costs, info_.shape(), pools.mean_bytes())),
      judge_(options.little) {
  memory_.SetObserver(options.observer);
  if (options.has_little_pass()) {
    little_ = {.n_used = info_.little, .misses = options.little.misses};
  }
}

void Player::AddDevices(SimTables tables) {
  devices_.emplace(*options_.lanes, std::move(tables), info_.shape(), memory_, pools_, machine_);
  memory_.SetDevices(&devices_->tier());
}

ReplayResult Player::Play(std::unique_ptr<Predictor> predictor) {
  const PredictorShape shape{.moe = info_.shape(), .depth = depth()};
  planner_.emplace(std::move(predictor), shape,
                   PrefetchLimits{.slots = memory_.slots(),
                                  .pool_of = [this](ExpertKey key) { return pools_.of(key); },
                                  .reads_at_device = options_.costs.io_depth,
                                  .expert_bytes = pools_.mean_bytes(),
                                  .is_fixed = lossy_.choices != nullptr || devices_.has_value()},
                   [this](ExpertKey key) { return memory_.contains(key); });
  protocol_.emplace(*planner_, memory_, info_.shape().n_layer, lossy_);
  for (size_t t = 0; t < trace_.tokens();) {
    if (t == 0 || trace_.starts_sequence(t)) BeginSequence();
    const auto tokens = std::views::iota(t, t + TokensOfStep(trace_, t, options_.step));
    const auto is_decode = [this](size_t row) { return trace_.phase(row) == Phase::kDecode; };
    RunStep({.tokens = {tokens.begin(), tokens.end()},
             .decodes = std::ranges::any_of(tokens, is_decode),
             .layers = trace_.layers_of(t)});
    t += tokens.size();
  }
  result_.predictions.assign(planner_->scores().begin(), planner_->scores().end());
  for (size_t i = 0; i < uncounted_.size(); ++i) {
    result_.predictions[i] = result_.predictions[i] - uncounted_[i];
  }
  result_.foreseen = planner_->foreseen_score() - uncounted_foreseen_;
  if (devices_) {
    result_.lanes = devices_->result();
    // Steps wait for copies to devices, too.
    result_.seconds = result_.lanes.decode.seconds;
    result_.bytes = result_.lanes.decode.disk_bytes;
  }
  return result_;
}

uint32_t Player::depth() const {
  const uint32_t wanted = options_.depth > 0 ? options_.depth : std::max(info_.depth, 1U);
  return std::clamp(wanted, 1U, std::max(info_.shape().n_layer - 1, 1U));
}

void Player::BeginSequence() {
  memory_.BeginSequence();
  if (devices_) devices_->BeginSequence();
  protocol_->BeginSequence();
}

void Player::RunStep(const Pass& step) {
  staged_bytes_ = 0.0;
  if (devices_) devices_->BeginStep(step.tokens.size(), step.decodes, counts(step));
  if (step.decodes) {
    Decode(step);
  } else {
    Prefill(step);
  }
  if (devices_) devices_->EndStep();
}

LayerPlan Player::Plan(const Pass& pass, uint32_t layer) {
  Routing routing{.n_tokens = static_cast<uint32_t>(pass.tokens.size()),
                  .n_used = pass.is_little ? info_.little : info_.shape().n_used,
                  .experts = {},
                  .weights = {}};
  std::vector<RowKind> kinds;
  std::vector<ExpertId> predicted;
  std::vector<float> weights;  // weights of `predicted`
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

void Player::Prefill(const Pass& step) {
  counts_ = false;
  look_ahead_ = 0;
  StepCost cost;
  protocol_->BeginStep({});
  BeginReadAhead(step);
  for (uint32_t l = step.layers.begin; l < step.layers.end; ++l) RunLayer(step, l, cost);
}

void Player::Decode(const Pass& step) {
  counts_ = counts(step);
  const double before = machine_.now();
  const double waited = machine_.waited();
  const std::vector<ExpertCounts> before_stats = memory_.stats();
  const LossCounts lost = protocol_->losses();
  const double read = machine_.bytes_read();
  double compute_seconds = 0.0;
  if (is_for_little(step)) {
    compute_seconds = DecodeLittleFirst(step);
  } else {
    protocol_->BeginStep({});
    compute_seconds = DecodePass(step);
  }
  if (!counts_) {
    uncounted_.assign(planner_->scores().begin(), planner_->scores().end());
    uncounted_foreseen_ = planner_->foreseen_score();
    return;
  }
  result_.tokens += step.tokens.size();
  const std::vector<ExpertCounts> after = memory_.stats();
  double needed = staged_bytes_;
  for (uint32_t pool = 0; pool < after.size(); ++pool) {
    needed += Count(before_stats[pool], after[pool]) * pools_.expert_bytes(pool);
  }
  result_.losses += protocol_->losses() - lost;
  result_.bytes += static_cast<uint64_t>(std::llround(machine_.bytes_read() - read));
  result_.seconds += machine_.now() - before;
  result_.bound_seconds += std::max(compute_seconds, machine_.SecondsToRead(needed));
  result_.stall_seconds += machine_.waited() - waited;
}

double Player::DecodePass(const Pass& pass) {
  const double before = machine_.now();
  const double busy = devices_ ? devices_->busiest() : 0.0;
  look_ahead_ = devices_ && devices_->tier().whole().has_all() ? 0 : planner_->look_ahead();
  StepCost cost;
  BeginReadAhead(pass);
  for (uint32_t l = pass.layers.begin; l < pass.layers.end; ++l) RunLayer(pass, l, cost);
  CHECK(!memory_.has_prefetched());
  cost.seconds = machine_.now() - before;
  planner_->StepDone(cost);
  if (devices_) return devices_->busiest() - busy;
  return ComputeSeconds(pass.is_little ? info_.little : info_.shape().n_used);
}

double Player::Count(const ExpertCounts& before, const ExpertCounts& now) {
  const ExpertCounts did = now - before;
  ExpertCounts& all = result_;
  all += did;
  return static_cast<double>(did.absent() + did.used_prefetches);
}

// Runs a layer's stages in the order of Forward::RunExperts() and LayerRun.
void Player::RunLayer(const Pass& pass, uint32_t layer, StepCost& cost) {
  ComputeDense(pass, layer, cost);
  LayerPlan plan = Plan(pass, layer);
  if (devices_) devices_->Assign(plan);
  Layer at{.plan = plan};
  Ask(pass, at);
  FinishReadAhead();
  Ask(pass, at);
  if (options_.fetches) protocol_->Prefetch();
  at.next = NextLayers(pass, layer + 1);
  const double before = machine_.now();
  AskAhead(pass, at);
  const double landed = ComputeExperts(pass, at);
  cost.demand_reads += at.missing;
  if (at.missing > 0) {
    cost.demand_seconds += landed - before;
    machine_.Compute(options_.costs.layer_wait, Machine::Reads::kMove);
  }
  if (counts_) AddPenalty(at.held);
  if (devices_) devices_->Done(plan);
  machine_.Pump();
  if (devices_ && options_.plan_observer) options_.plan_observer(plan);
}

// Experts of layers from `layer` on that the tokens name.
std::vector<ExpertKey> Player::KnownFrom(const Pass& pass, uint32_t layer) const {
  std::vector<ExpertKey> keys;
  for (; layer < std::min(info_.token_layers, pass.layers.end); ++layer) {
    const auto begin = static_cast<std::ptrdiff_t>(keys.size());
    for (const size_t t : pass.tokens) {
      for (const ExpertId e : trace_.experts(t, layer)) {
        keys.push_back({.layer = ExpertLayerId{static_cast<uint16_t>(layer)}, .expert = e});
      }
    }
    std::ranges::sort(keys.begin() + begin, keys.end());
    keys.erase(std::unique(keys.begin() + begin, keys.end()), keys.end());
  }
  return keys;
}

// Experts that the engine reads ahead, of layers from `first` on: those that tokens name or, behind
// these layers, those of the next layer that a long prompt will need.
std::vector<ExpertKey> Player::NextLayers(const Pass& pass, uint32_t first) const {
  std::vector<ExpertKey> next = KnownFrom(pass, first);
  if (next.empty() && first > 0 && info_.reads_prompts_ahead) {
    const auto is_prompt = [this](size_t t) { return trace_.phase(t) == Phase::kPrefill; };
    next = PlanReadAhead(ExpertLayerId{static_cast<uint16_t>(first - 1)}, pass.layers.end,
                         info_.shape().n_expert, info_.shape().n_used,
                         static_cast<size_t>(std::ranges::count_if(pass.tokens, is_prompt)));
  }
  if (devices_) {
    std::erase_if(next, [this](ExpertKey key) { return devices_->tier().contains(key); });
  }
  return next;
}

void Player::ComputeDense(const Pass& pass, uint32_t layer, StepCost& cost) {
  if (!is_timed(pass)) return;
  const bool is_known = layer < info_.token_layers;
  if (pass.decodes) {
    machine_.PumpAhead(is_known ? std::numeric_limits<double>::infinity()
                                : static_cast<double>(planner_->bytes_beside_dense()));
  }
  const double before = machine_.now();
  machine_.Compute(devices_ ? devices_->DenseSeconds(pass.tokens.size()) : dense_seconds_,
                   Machine::Reads::kStay);
  cost.dense_seconds += machine_.now() - before;
  if (devices_) devices_->DenseDone(machine_.now() - before);
  memory_.Settle(layer);
}

// Requests the plan's experts while slots are free; experts in device slots come last.
void Player::Ask(const Pass& pass, Layer& at) {
  using Reading = SimMemory::Reading;
  const Reading reading = is_timed(pass) ? Reading::kUrgent : Reading::kFree;
  const std::vector<PlannedExpert>& experts = at.plan.experts;
  const size_t before = at.held.size();
  for (; !at.has_all(); ++at.next_expert) {
    const PlannedExpert& expert = experts[at.next_expert];
    std::optional<Asked> asked =
        expert.is_staged ? memory_.Stage(expert) : memory_.Ask(expert, reading);
    if (!asked) break;
    at.held.push_back(*std::move(asked));
  }
  if (at.held.size() == before) return;
  machine_.Pump();
  at.missing += static_cast<uint64_t>(
      std::ranges::count_if(std::span(at.held).subspan(before),
                            [this](const Asked& one) { return !memory_.has_all(one.reads); }));
}

// Requests what tokens name, before the first layer.
void Player::BeginReadAhead(const Pass& pass) {
  if (info_.token_layers == 0) return;
  const LayerPlan none;
  Layer at{.plan = none};
  at.next = NextLayers(pass, 0);
  AskAhead(pass, at);
}

void Player::AskAhead(const Pass& pass, Layer& at) {
  using Reading = SimMemory::Reading;
  const Reading reading = is_timed(pass) ? Reading::kAhead : Reading::kFree;
  for (; at.has_all() && at.next_ahead < at.next.size(); ++at.next_ahead) {
    const ExpertKey key = at.next[at.next_ahead];
    const bool is_known = key.layer.value < info_.token_layers;
    const Use use = is_known && pass.decodes ? Use::kPrefetch : Use::kPrefill;
    std::optional<Asked> one = memory_.Ask({.key = key, .use = use, .n_pairs = 0}, reading);
    if (!one) break;
    read_ahead_.push_back(*std::move(one));
  }
  machine_.Pump();
}

// Releases computed experts in the plan's order; each free slot is offered to the layer's own
// experts, then to the next layer's.
void Player::LetGoOfDone(const Pass& pass, Layer& at) {
  for (; at.n_let_go < at.held.size() && at.held[at.n_let_go].is_computed; ++at.n_let_go) {
    const Asked one = at.held[at.n_let_go];
    if (one.expert.place == Place::kCopied && !at.has_all()) {
      devices_->WaitForCopies(one.expert.device);
    }
    memory_.Finish(one);
    Ask(pass, at);
    AskAhead(pass, at);
  }
}

// Releases the experts that were read ahead for this layer. The layer holds and waits for those
// that it requested, too; the rest goes on being read.
void Player::FinishReadAhead() {
  for (const Asked& one : read_ahead_) memory_.Finish(one);
  read_ahead_.clear();
}

double Player::ComputeExperts(const Pass& pass, Layer& at) {
  double landed = machine_.now();
  const auto waits_for_cpu = [](const Asked& one) {
    return one.expert.place == Place::kHost && !one.is_computed;
  };
  for (;;) {
    LetGoOfDone(pass, at);
    const auto there = std::ranges::find_if(at.held, [&](const Asked& one) {
      return waits_for_cpu(one) && memory_.has_all(one.reads);
    });
    if (there != at.held.end()) {
      Compute(pass, *there);
      continue;
    }
    if (std::ranges::any_of(at.held, waits_for_cpu)) {
      machine_.Wait();
      landed = machine_.now();
      continue;
    }
    // Devices and links work beside the CPU, so copies have begun as their experts landed.
    const auto copied = std::ranges::find(at.held, false, &Asked::is_computed);
    if (copied == at.held.end()) break;
    if (WaitFor(*copied)) landed = machine_.now();
    Compute(pass, *copied);
  }
  CHECK(at.has_all() && "no slot for an expert: prefetched ones hold them");
  return landed;
}

bool Player::WaitFor(const Asked& asked) {
  if (memory_.has_all(asked.reads)) return false;
  while (!memory_.has_all(asked.reads)) machine_.Wait();
  return true;
}

void Player::Compute(const Pass& pass, Asked& asked) {
  asked.is_computed = true;
  if (asked.expert.place == Place::kCopied) {
    devices_->Copy(asked);
  } else if (devices_) {
    devices_->ComputeOnHost(asked);
  } else {
    const double seconds = ExpertSeconds(asked);
    if (is_timed(pass)) machine_.Compute(seconds, Machine::Reads::kMove);
  }
}

double Player::ExpertSeconds(const Asked& asked) {
  const double seconds = pools_.expert_bytes(pools_.of(asked.expert.key)) * seconds_per_byte_;
  const uint32_t uses = memory_.Use(asked);
  const double more = uses == 0   ? options_.costs.first_use
                      : uses == 1 ? options_.costs.second_use
                                  : 0.0;
  return seconds * (1.0 + more);
}

void Player::AddPenalty(std::span<const Asked> asked) {
  for (const Asked& one : asked) {
    const double bytes = pools_.expert_bytes(pools_.of(one.expert.key));
    if (one.expert.is_staged) staged_bytes_ += bytes;
    if (!one.expert.is_staged && one.placed.was == Placement::Was::kReady) continue;
    const bool is_whole = one.expert.key.copy == 0 || pools_.mean_bytes() <= 0.0;
    result_.penalty += is_whole ? 1.0 : bytes / pools_.mean_bytes();
  }
}

bool Player::is_for_little(const Pass& step) const {
  return little_.is_on() && std::ranges::all_of(step.tokens, [this](size_t t) {
           return trace_.phase(t) == Phase::kDecode;
         });
}

double Player::DecodeLittleFirst(const Pass& step) {
  protocol_->BeginStep(little_);
  const double seconds = DecodePass(
      {.tokens = step.tokens, .decodes = true, .is_little = true, .layers = step.layers});
  Pass again{.tokens = {}, .decodes = true, .layers = step.layers};
  for (const size_t t : step.tokens) {
    if (!judge_.Keeps(trace_.confidence(t))) again.tokens.push_back(t);
  }
  if (counts_) {
    result_.again += again.tokens.size();
    result_.kept += step.tokens.size() - again.tokens.size();
  }
  return again.tokens.empty() ? seconds : seconds + DecodeAgain(again);
}

double Player::DecodeAgain(const Pass& again) {
  std::vector<std::vector<ExpertId>> foreseen(info_.shape().n_layer);  // [layer][row][K]
  for (size_t l = 0; l < foreseen.size(); ++l) {
    for (const size_t t : again.tokens) foreseen[l].append_range(trace_.little_experts(t, l));
  }
  protocol_->BeginStep({});
  if (options_.fetches) {
    protocol_->Foresee(foreseen, static_cast<uint32_t>(again.tokens.size()));
    machine_.Pump();
  }
  return DecodePass(again);
}

double Player::ComputeSeconds(uint32_t n_used) const {
  const double left_out = 1.0 - static_cast<double>(n_used) / info_.shape().n_used;
  return options_.costs.compute * (1.0 - options_.costs.expert_share * left_out);
}

}  // namespace moestro
