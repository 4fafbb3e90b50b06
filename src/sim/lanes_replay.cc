// SPDX-License-Identifier: MIT
#include "sim/lanes_replay.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <unordered_set>
#include <utility>

#include "base/check.h"
#include "decide/layer/layer_planner.h"
#include "decide/slots/popularity.h"
#include "decide/slots/resident_model.h"

namespace moestro {
namespace {

void Fill(SlotTable& table, std::span<const ExpertKey> keys) {
  const size_t n = std::min(keys.size(), table.slots());
  // As if prefetched: the policy does not know them yet, and the oldest of them leaves first.
  for (size_t i = n; i > 0; --i) {
    const std::optional<Placement> placed = table.Request(keys[i - 1], Use::kPrefetch);
    CHECK(placed.has_value());
    if (placed->was == Placement::Was::kAbsent) table.Landed(placed->slot);
    table.Unpin(placed->slot);
  }
}

// Who is in memory at the start: those that the device lacks come first.
std::vector<ExpertKey> MemoryFirst(const MoeShape& shape, std::span<const ExpertKey> first,
                                   size_t on_device, Tiers tiers) {
  const std::span<const ExpertKey> there = first.first(std::min(on_device, first.size()));
  std::vector<ExpertKey> keys(first.begin() + static_cast<ptrdiff_t>(there.size()), first.end());
  std::unordered_set<ExpertKey> listed(first.begin(), first.end());
  for (const ExpertKey key : AllExperts(shape)) {
    if (listed.insert(key).second) keys.push_back(key);
  }
  if (tiers == Tiers::kInclusive) keys.append_range(there);
  return keys;
}

// Experts that devices can hold at the start.
uint64_t FilledSlots(const LanesOptions& options) {
  if (options.mode == PlaceMode::kCpu) return 0;
  return std::accumulate(options.device_slots.begin(), options.device_slots.end(), uint64_t{0});
}

uint64_t ExpertBytes(const Trace& trace, const LanesOptions& options) {
  return options.expert_bytes > 0 ? options.expert_bytes : trace.info().expert_bytes;
}

// Memory and devices with whom they have at the start. All experts are of one form, in one pool.
// `devices`: [device]; nullopt: nothing runs there.
DeviceTier MakeTier(const Trace& trace, const LanesOptions& options, SlotTable memory,
                    std::vector<std::optional<SlotTable>> devices) {
  const MoeShape& shape = trace.info().shape();
  if (options.fills_memory) {
    Fill(memory, MemoryFirst(shape, options.first, FilledSlots(options), options.tiers));
  }
  memory.SetObserver(options.observer);
  std::vector<SlotTable> behind;
  behind.push_back(std::move(memory));
  std::vector<std::vector<std::optional<SlotTable>>> tables;
  for (std::optional<SlotTable>& device : devices)
    tables.emplace_back().push_back(std::move(device));
  DeviceTier tier({.tables = std::move(tables),
                   .form_of = [](ExpertKey) { return 0U; },
                   .bytes_of = [bytes = ExpertBytes(trace, options)](ExpertKey) { return bytes; },
                   .in_memory = {},
                   .memory_slots = {options.slots},
                   .pool_of = [](ExpertKey) { return 0U; },
                   .n_expert = shape.n_expert,
                   .memory = ResidentModel(std::move(behind), [](ExpertKey) { return 0U; }),
                   .tiers = options.tiers,
                   .usual_share = shape.usual_share()},
                  options.model, options.mode);
  for (const DeviceTier::Promotion& one : tier.Fill(options.first)) tier.Promoted(one, true);
  return tier;
}

class LanesPlayer {
 public:
  LanesPlayer(const Trace& trace, const LanesOptions& options, DeviceTier tier)
      : trace_(trace),
        options_(options),
        tier_(std::move(tier)),
        expert_bytes_(ExpertBytes(trace, options)),
        backlog_(options.model.devices.size()) {
    for (LanePhase* phase : {&result_.decode, &result_.prefill}) {
      phase->devices.resize(backlog_.size());
      phase->lanes.devices.resize(backlog_.size());
    }
  }

  LanesResult Play() {
    for (size_t t = 0; t < trace_.tokens();) {
      if (t == 0 || trace_.starts_sequence(t)) tier_.BeginSequence();
      const size_t n = TokensOfStep(trace_, t, options_.step);
      RunStep(t, n);
      t += n;
    }
    return result_;
  }

 private:
  void RunStep(size_t first, size_t n) {
    bool decodes = false;
    for (size_t t = first; t < first + n; ++t) decodes |= trace_.phase(t) == Phase::kDecode;
    LanePhase not_counted{.lanes = result_.decode.lanes, .devices = result_.decode.devices};
    LanePhase& phase = first < options_.count_from ? not_counted
                       : decodes                   ? result_.decode
                                                   : result_.prefill;
    phase.tokens += n;
    ++phase.steps;
    // What moves for later lands before the next step: whatever the links have left of it.
    if (!backlog_.empty()) phase.seconds += std::ranges::max(backlog_);
    std::ranges::fill(backlog_, 0.0);
    for (const DeviceTier::Promotion& one : promotions_) tier_.Promoted(one, true);
    promotions_.clear();
    if (decodes) FillByPrompt();
    for (uint32_t l = 0; l < trace_.info().shape().n_layer; ++l) RunLayer(first, n, l, phase);
  }

  // The first token waits for it.
  void FillByPrompt() {
    for (const DeviceTier::Promotion& one : tier_.FillByPrompt()) {
      result_.prefill.seconds += options_.model.devices[one.device].copy.Seconds(expert_bytes_);
      if (!tier_.is_in_memory(one.key)) {
        result_.prefill.seconds += options_.model.disk.Seconds(expert_bytes_);
        result_.prefill.disk_bytes += expert_bytes_;
      }
      result_.prefill.copy_bytes += expert_bytes_;
      tier_.Promoted(one, true);
    }
  }

  void RunLayer(size_t first, size_t n, uint32_t layer, LanePhase& phase) {
    const ExpertLayerId id{static_cast<uint16_t>(layer)};
    const RoutedRows rows = RowsOf(trace_, first, n, layer);
    if (std::ranges::contains(rows.kinds, RowKind::kDecode)) tier_.BeginLayer(id);
    LayerPlan plan = PlanLayer(id, rows.routing, rows.kinds,
                               [this](ExpertKey key) { return tier_.is_in_memory(key); });
    CountWhere(plan, phase);
    plan.predicted = tier_.Assign(plan);
    tier_.Done(plan);
    CountWork(plan, phase);
    for (const MovedExpert& one : plan.moved_back) MoveBack(one.device, phase);
    const double dense = options_.dense.Seconds(options_.dense_bytes, static_cast<uint32_t>(n));
    for (double& left : backlog_) left = std::max(0.0, left - dense);
    phase.dense_seconds += dense;
    phase.seconds += dense + SecondsOf(plan.predicted);
    if (options_.plan_observer) options_.plan_observer(plan);
    if (const auto promotion = tier_.Promote(plan)) Begin(*promotion, phase);
  }

  // A layer's copies wait for those under way to the same device for later; where it has none,
  // these go on beside it.
  double SecondsOf(const LaneTimes& times) {
    double seconds = times.host;
    for (size_t d = 0; d < times.devices.size(); ++d) {
      const double waits = times.devices[d].copy > 0.0 ? std::exchange(backlog_[d], 0.0) : 0.0;
      seconds = std::max(seconds, times.devices[d].compute + waits);
    }
    for (double& left : backlog_) left = std::max(0.0, left - seconds);
    return seconds;
  }

  void Begin(const DeviceTier::Promotion& promotion, LanePhase& phase) {
    promotions_.push_back(promotion);
    const uint32_t d = promotion.device;
    if (promotion.moved_back) MoveBack(d, phase);
    backlog_[d] += options_.model.devices[d].copy.Seconds(expert_bytes_);
    ++phase.promoted;
    phase.copy_bytes += expert_bytes_;
    ++phase.devices[d].promoted;
    phase.devices[d].copy_bytes += expert_bytes_;
  }

  // Everything waits for it.
  void MoveBack(uint32_t device, LanePhase& phase) const {
    phase.seconds += options_.model.devices[device].copy.Seconds(expert_bytes_);
    phase.copy_bytes += expert_bytes_;
    ++phase.moved_back;
    phase.devices[device].copy_bytes += expert_bytes_;
    ++phase.devices[device].moved_back;
  }

  // Before any expert moves.
  void CountWhere(const LayerPlan& plan, LanePhase& phase) const {
    for (const PlannedExpert& expert : plan.experts) {
      const bool is_there = tier_.contains(expert.key);
      ++phase.experts;
      phase.in_device += is_there;
      phase.in_memory += !is_there && expert.is_present;
      phase.on_disk += !is_there && !expert.is_present;
    }
  }

  void CountWork(const LayerPlan& plan, LanePhase& phase) const {
    for (const PlannedExpert& expert : plan.experts) {
      if (expert.place != Place::kDevice && !expert.is_present) phase.disk_bytes += expert_bytes_;
      if (expert.place == Place::kHost) {
        ++phase.on_host;
        phase.host_bytes += expert_bytes_;
        continue;
      }
      const bool is_copied = expert.place == Place::kCopied;
      LanePhase::Device& its = phase.devices[expert.device];
      ++(is_copied ? phase.copied : phase.ran_there);
      ++(is_copied ? its.copied : its.ran_there);
      phase.device_bytes += expert_bytes_;
      its.bytes += expert_bytes_;
      if (!is_copied) continue;
      phase.staged += expert.is_staged;
      its.staged += expert.is_staged;
      phase.copy_bytes += expert_bytes_;
      its.copy_bytes += expert_bytes_;
    }
    phase.lanes.host += plan.predicted.host;
    phase.lanes.disk += plan.predicted.disk;
    for (size_t d = 0; d < plan.predicted.devices.size(); ++d) {
      phase.lanes.devices[d].compute += plan.predicted.devices[d].compute;
      phase.lanes.devices[d].copy += plan.predicted.devices[d].copy;
    }
  }

  const Trace& trace_;
  const LanesOptions& options_;
  DeviceTier tier_;
  uint64_t expert_bytes_;
  std::vector<DeviceTier::Promotion> promotions_;  // under way
  std::vector<double> backlog_;  // [device], seconds of its link that they still take
  LanesResult result_;
};

Result<SlotTable> MakeTable(const MoeShape& moe, uint64_t slots, const PolicyChoice& choice) {
  TRY(std::unique_ptr<Policy> policy, MakePolicy(choice));
  const PolicyShape shape{.slots = slots, .layers = moe.n_layer, .experts = moe.n_expert};
  return SlotTable(shape, std::move(policy));
}

}  // namespace

Result<LanesResult> ReplayLanes(const Trace& trace, const LanesOptions& options) {
  const MoeShape& moe = trace.info().shape();
  if (options.slots < moe.n_used) {
    return Fail(Errc::kUsage, "{} slots do not hold the {} experts that a token uses in one layer",
                options.slots, moe.n_used);
  }
  if (options.device_slots.size() > options.model.devices.size()) {
    return Fail(Errc::kUsage, "slots on {} devices, and the machine has {}",
                options.device_slots.size(), options.model.devices.size());
  }
  if (options.step.rows > 1 && HasStepsOfRows(trace)) {
    return Fail(Errc::kUsage, "the trace has steps of several rows of its own; {} cannot be added",
                options.step.rows);
  }
  TRY(SlotTable memory, MakeTable(moe, options.slots, options.policy));
  std::vector<std::optional<SlotTable>> devices(options.model.devices.size());
  for (size_t d = 0; d < options.device_slots.size(); ++d) {
    if (options.device_slots[d] == 0 || options.mode == PlaceMode::kCpu) continue;
    TRY(devices[d], MakeTable(moe, options.device_slots[d], options.policy));
  }
  DeviceTier tier = MakeTier(trace, options, std::move(memory), std::move(devices));
  return LanesPlayer(trace, options, std::move(tier)).Play();
}

std::vector<ExpertKey> ByPopularity(const Trace& trace, size_t tokens) {
  const MoeShape& shape = trace.info().shape();
  std::vector<uint64_t> counts(shape.experts());
  for (size_t t = 0; t < std::min(tokens, trace.tokens()); ++t) {
    for (size_t l = 0; l < shape.n_layer; ++l) {
      for (const ExpertId e : trace.experts(t, l)) ++counts[l * shape.n_expert + e.value];
    }
  }
  return MostFirst(shape, counts);
}

std::vector<ExpertKey> ByLayer(const MoeShape& shape) {
  std::vector<ExpertKey> keys = AllExperts(shape);
  std::ranges::stable_sort(keys, std::greater(), [](ExpertKey key) { return key.layer; });
  return keys;
}

}  // namespace moestro
