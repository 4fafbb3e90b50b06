// SPDX-License-Identifier: MIT
#include "sim/lanes_replay.h"

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <unordered_set>
#include <utility>

#include "base/check.h"
#include "decide/layer_planner.h"

namespace moestro {
namespace {

std::vector<ExpertKey> AllExperts(const MoeShape& shape) {
  std::vector<ExpertKey> keys;
  keys.reserve(shape.experts());
  for (uint16_t l = 0; l < shape.n_layer; ++l) {
    for (uint16_t e = 0; e < shape.n_expert; ++e) {
      keys.push_back({.layer = LayerId{l}, .expert = {e}});
    }
  }
  return keys;
}

// counts: [layer][expert].
std::vector<ExpertKey> MostFirst(const MoeShape& shape, const std::vector<uint64_t>& counts) {
  std::vector<ExpertKey> keys = AllExperts(shape);
  std::ranges::stable_sort(keys, std::greater(), [&](ExpertKey key) {
    return counts[size_t{key.layer.value} * shape.n_expert + key.expert.value];
  });
  return keys;
}

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

class LanesPlayer {
 public:
  LanesPlayer(const Trace& trace, const LanesOptions& options, SlotTable memory, SlotTable device)
      : trace_(trace),
        options_(options),
        memory_(std::move(memory)),
        device_(std::move(device)),
        expert_bytes_(options.expert_bytes > 0 ? options.expert_bytes : trace.info().expert_bytes),
        uses_device_(options.has_device && options.device_slots > 0 &&
                     options.mode != PlaceMode::kCpu) {
    FillSlots();
    memory_.SetObserver(options.observer);
  }

  LanesResult Play() {
    for (size_t t = 0; t < trace_.tokens();) {
      if (t == 0 || trace_.starts_sequence(t)) {
        memory_.BeginSequence();
        device_.BeginSequence();
      }
      const size_t n = TokensOfStep(trace_, t, options_.step);
      RunStep(t, n);
      t += n;
    }
    return result_;
  }

 private:
  struct Held {
    SlotTable* table;
    Placement placed;
  };

  void FillSlots() {
    if (uses_device_) Fill(device_, options_.first);
    if (!options_.fills_memory) return;
    std::vector<ExpertKey> keys = options_.first;
    std::unordered_set<ExpertKey> listed(keys.begin(), keys.end());
    for (const ExpertKey key : AllExperts(trace_.info().shape())) {
      if (listed.insert(key).second) keys.push_back(key);
    }
    // What the device has is worth least in memory.
    std::ranges::stable_partition(keys, [this](ExpertKey key) { return !device_.contains(key); });
    Fill(memory_, keys);
  }

  void RunStep(size_t first, size_t n) {
    bool decodes = false;
    for (size_t t = first; t < first + n; ++t) decodes |= trace_.phase(t) == Phase::kDecode;
    LanePhase not_counted;
    LanePhase& phase = first < options_.count_from ? not_counted
                       : decodes                   ? result_.decode
                                                   : result_.prefill;
    phase.tokens += n;
    ++phase.steps;
    for (uint32_t l = 0; l < trace_.info().shape().n_layer; ++l) RunLayer(first, n, l, phase);
  }

  void RunLayer(size_t first, size_t n, uint32_t layer, LanePhase& phase) {
    const LayerId id{static_cast<uint16_t>(layer)};
    const RoutedRows rows = RowsOf(trace_, first, n, layer);
    if (std::ranges::contains(rows.kinds, RowKind::kDecode)) {
      memory_.BeginLayer(id);
      device_.BeginLayer(id);
    }
    // Ahead of the others comes what some lane can begin with at once.
    LayerPlan plan = PlanLayer(id, rows.routing, rows.kinds, [&](ExpertKey key) {
      return memory_.contains(key) || is_on_device(key);
    });
    std::vector<LaneJob> jobs;
    for (const PlannedExpert& expert : plan.experts) jobs.push_back(JobOf(expert));
    const auto held = static_cast<size_t>(std::ranges::count_if(jobs, &LaneJob::on_device));
    const std::array room = {static_cast<uint32_t>(device_.slots() - held)};
    const LanePlan lanes = PlanLanes(jobs, options_.model, options_.mode, room);
    for (size_t i = 0; i < jobs.size(); ++i) plan.experts[i].place = lanes.places[i];
    TakeSlots(plan);
    Count(jobs, lanes, phase);
    const double dense = options_.dense.Seconds(options_.dense_bytes, static_cast<uint32_t>(n));
    phase.dense_seconds += dense;
    phase.seconds += dense + lanes.times.seconds();
  }

  LaneJob JobOf(const PlannedExpert& expert) const {
    return {.bytes = expert_bytes_,
            .rows = expert.n_pairs,
            .in_memory = memory_.contains(expert.key),
            .on_device = is_on_device(expert.key),
            .pool = uses_device_ ? std::optional<uint32_t>(0) : std::nullopt};
  }
  bool is_on_device(ExpertKey key) const { return uses_device_ && device_.contains(key); }

  // Makes the plan true. Device slots that the layer uses are pinned before a copy takes one.
  void TakeSlots(const LayerPlan& plan) {
    std::deque<Held> in_device;
    std::deque<Held> in_memory;
    for (const PlannedExpert& expert : plan.experts) {
      if (expert.place == Place::kDevice) Take(device_, expert, in_device);
    }
    for (const PlannedExpert& expert : plan.experts) {
      if (expert.place == Place::kCopied) Take(device_, expert, in_device);
      const bool from_disk_to_device =
          expert.place == Place::kCopied && !memory_.contains(expert.key);
      if (expert.place != Place::kDevice && !from_disk_to_device) {
        Take(memory_, expert, in_memory);
      }
    }
    for (const Held& held : in_device) Release(held);
    for (const Held& held : in_memory) Release(held);
  }

  // With fewer slots than the step's rows need, the oldest has been computed by then.
  static void Take(SlotTable& table, const PlannedExpert& expert, std::deque<Held>& held) {
    std::optional<Placement> placed = table.Request(expert.key, expert.use, expert.n_pairs);
    while (!placed) {
      CHECK(!held.empty());
      Release(held.front());
      held.pop_front();
      placed = table.Request(expert.key, expert.use, expert.n_pairs);
    }
    held.push_back({.table = &table, .placed = *placed});
  }
  static void Release(const Held& held) {
    if (held.placed.was == Placement::Was::kAbsent) held.table->Landed(held.placed.slot);
    held.table->Unpin(held.placed.slot);
  }

  void Count(std::span<const LaneJob> jobs, const LanePlan& lanes, LanePhase& phase) const {
    phase.experts += jobs.size();
    for (size_t i = 0; i < jobs.size(); ++i) {
      const LaneJob& job = jobs[i];
      const Place place = lanes.places[i];
      phase.in_device += job.on_device;
      phase.in_memory += !job.on_device && job.in_memory;
      phase.on_disk += !job.on_device && !job.in_memory;
      phase.ran_there += place == Place::kDevice;
      phase.copied += place == Place::kCopied;
      phase.on_host += place == Place::kHost;
      (place == Place::kHost ? phase.host_bytes : phase.device_bytes) += job.bytes;
      if (place == Place::kCopied) phase.copy_bytes += job.bytes;
      if (place != Place::kDevice && !job.in_memory) phase.disk_bytes += job.bytes;
    }
    phase.lanes.host += lanes.times.host;
    phase.lanes.device += lanes.times.device;
    phase.lanes.copy += lanes.times.copy;
    phase.lanes.disk += lanes.times.disk;
  }

  const Trace& trace_;
  const LanesOptions& options_;
  SlotTable memory_;
  SlotTable device_;
  uint64_t expert_bytes_;
  bool uses_device_;
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
  return LanesPlayer(trace, options, std::move(memory), std::move(device)).Play();
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

std::vector<ExpertKey> ByPopularity(const PathTable& paths) {
  const MoeShape& shape = paths.shape();
  constexpr uint64_t kAlways = 65535;
  std::vector<uint64_t> counts(shape.experts(), kAlways * shape.n_used / shape.n_expert);
  for (size_t l = 0; l < paths.layers().size(); ++l) {
    const std::vector<PathShare>& popularity = paths.layers()[l].popularity;
    std::ranges::copy(popularity, counts.begin() + static_cast<ptrdiff_t>(l * shape.n_expert));
  }
  return MostFirst(shape, counts);
}

std::vector<ExpertKey> ByLayer(const MoeShape& shape) {
  std::vector<ExpertKey> keys = AllExperts(shape);
  std::ranges::stable_sort(keys, std::greater(), [](ExpertKey key) { return key.layer; });
  return keys;
}

}  // namespace moestro
