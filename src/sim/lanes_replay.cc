// SPDX-License-Identifier: MIT
#include "sim/lanes_replay.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <unordered_set>
#include <utility>

#include "base/check.h"
#include "decide/layer_planner.h"
#include "decide/popularity.h"
#include "decide/resident_model.h"

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

bool uses_device(const LanesOptions& options) {
  return options.has_device && options.device_slots > 0 && options.mode != PlaceMode::kCpu;
}

uint64_t ExpertBytes(const Trace& trace, const LanesOptions& options) {
  return options.expert_bytes > 0 ? options.expert_bytes : trace.info().expert_bytes;
}

// Both with whom they have at the start. All experts are of one form, in one pool.
DeviceTier MakeTier(const Trace& trace, const LanesOptions& options, SlotTable memory,
                    SlotTable device) {
  const MoeShape& shape = trace.info().shape();
  if (options.fills_memory) {
    const size_t on_device = uses_device(options) ? options.device_slots : 0;
    Fill(memory, MemoryFirst(shape, options.first, on_device, options.tiers));
  }
  memory.SetObserver(options.observer);
  std::vector<SlotTable> behind;
  behind.push_back(std::move(memory));
  std::vector<std::optional<SlotTable>> tables(1);
  if (uses_device(options)) tables.front().emplace(std::move(device));
  DeviceTier tier({.tables = std::move(tables),
                   .form_of = [](ExpertKey) { return 0U; },
                   .bytes_of = [bytes = ExpertBytes(trace, options)](ExpertKey) { return bytes; },
                   .in_memory = {},
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
        expert_bytes_(ExpertBytes(trace, options)) {}

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
    LanePhase not_counted;
    LanePhase& phase = first < options_.count_from ? not_counted
                       : decodes                   ? result_.decode
                                                   : result_.prefill;
    phase.tokens += n;
    ++phase.steps;
    // What moves for later lands before the next step: whatever the link has left of it.
    phase.seconds += std::exchange(backlog_, 0.0);
    for (const DeviceTier::Promotion& one : promotions_) tier_.Promoted(one, true);
    promotions_.clear();
    for (uint32_t l = 0; l < trace_.info().shape().n_layer; ++l) RunLayer(first, n, l, phase);
  }

  void RunLayer(size_t first, size_t n, uint32_t layer, LanePhase& phase) {
    const LayerId id{static_cast<uint16_t>(layer)};
    const RoutedRows rows = RowsOf(trace_, first, n, layer);
    if (std::ranges::contains(rows.kinds, RowKind::kDecode)) tier_.BeginLayer(id);
    LayerPlan plan = PlanLayer(id, rows.routing, rows.kinds,
                               [this](ExpertKey key) { return tier_.is_in_memory(key); });
    CountWhere(plan, phase);
    plan.predicted = tier_.Assign(plan);
    tier_.Done(plan);
    CountWork(plan, phase);
    for (size_t i = 0; i < plan.moved_back.size(); ++i) MoveBack(phase);
    const double dense = options_.dense.Seconds(options_.dense_bytes, static_cast<uint32_t>(n));
    backlog_ = std::max(0.0, backlog_ - dense);
    phase.dense_seconds += dense;
    phase.seconds += dense + SecondsOf(plan.predicted);
    if (options_.plan_observer) options_.plan_observer(plan);
    if (const auto promotion = tier_.Promote(plan)) Begin(*promotion, phase);
  }

  // The layer's copies wait for those under way for later; without any, these go on beside it.
  double SecondsOf(const LaneTimes& times) {
    if (times.copy <= 0.0) {
      backlog_ = std::max(0.0, backlog_ - times.seconds());
      return times.seconds();
    }
    return std::max(times.host, times.device + std::exchange(backlog_, 0.0));
  }

  void Begin(const DeviceTier::Promotion& promotion, LanePhase& phase) {
    promotions_.push_back(promotion);
    if (promotion.moved_back) MoveBack(phase);
    backlog_ += options_.model.copy.Seconds(expert_bytes_);
    ++phase.promoted;
    phase.copy_bytes += expert_bytes_;
  }

  // Everything waits for it.
  void MoveBack(LanePhase& phase) const {
    phase.seconds += options_.model.copy.Seconds(expert_bytes_);
    phase.copy_bytes += expert_bytes_;
    ++phase.moved_back;
  }

  // Before anybody moves.
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
      phase.ran_there += expert.place == Place::kDevice;
      phase.copied += expert.place == Place::kCopied;
      phase.staged += expert.is_staged;
      phase.on_host += expert.place == Place::kHost;
      (expert.place == Place::kHost ? phase.host_bytes : phase.device_bytes) += expert_bytes_;
      if (expert.place == Place::kCopied) phase.copy_bytes += expert_bytes_;
      if (expert.place != Place::kDevice && !expert.is_present) phase.disk_bytes += expert_bytes_;
    }
    phase.lanes.host += plan.predicted.host;
    phase.lanes.device += plan.predicted.device;
    phase.lanes.copy += plan.predicted.copy;
    phase.lanes.disk += plan.predicted.disk;
  }

  const Trace& trace_;
  const LanesOptions& options_;
  DeviceTier tier_;
  uint64_t expert_bytes_;
  std::vector<DeviceTier::Promotion> promotions_;  // under way
  double backlog_ = 0.0;                           // seconds of the link that they still take
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
  if (options.device_slots > 0 && !options.has_device) {
    return Fail(Errc::kUsage, "{} slots on a device, and the machine has none",
                options.device_slots);
  }
  if (options.step.rows > 1 && HasStepsOfRows(trace)) {
    return Fail(Errc::kUsage, "the trace has steps of several rows of its own; {} cannot be added",
                options.step.rows);
  }
  TRY(SlotTable memory, MakeTable(moe, options.slots, options.policy));
  TRY(SlotTable device, MakeTable(moe, options.device_slots, options.policy));
  DeviceTier tier = MakeTier(trace, options, std::move(memory), std::move(device));
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
