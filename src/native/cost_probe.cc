// SPDX-License-Identifier: MIT
#include "native/cost_probe.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "base/quantile.h"
#include "native/catalog.h"

namespace moestro {
namespace {

// Experts of so many tokens take turns, so that none has just been used; each has been used twice
// before it counts.
constexpr size_t kSets = 5;
constexpr size_t kPasses = 4;
constexpr size_t kPassesBefore = 2;
constexpr int kRounds = 3;               // of reading a token's experts
constexpr int kDiskRounds = 9;           // fewer, down to three, if they take long
constexpr double kLongDiskRounds = 5.0;  // seconds
constexpr size_t kStepsBeside = 12;      // that compute while the disk reads
constexpr size_t kReadsBeside = 8;       // experts under way then

using SteadyClock = std::chrono::steady_clock;
using LayerKeys = std::vector<std::vector<ExpertKey>>;  // [layer]

double SecondsFrom(SteadyClock::time_point begun) {
  return std::chrono::duration<double>(SteadyClock::now() - begun).count();
}

bool IsRoundLeft(int round, SteadyClock::time_point begun) {
  return round < kRounds || (round < kDiskRounds && SecondsFrom(begun) < kLongDiskRounds);
}

// One step of the last token again.
struct SeenStep {
  double seconds = 0.0;
  double expert_seconds = 0.0;
  uint64_t misses = 0;
  LayerKeys keys = {};
};

class CostProbe {
 public:
  CostProbe(const CostParts& parts, Batch again)
      : parts_(parts), again_(std::move(again)), layers_(parts.shape.decode_layers()) {}

  Result<std::optional<MachineCosts>> Measure();

 private:
  bool ChooseSets();
  void ChooseOthers(std::vector<std::vector<ExpertId>> there);
  Result<SeenStep> Step();
  Status Alone(MachineCosts& costs);
  Status Uses(MachineCosts& costs);
  Status ReadAgain(const LayerKeys& keys);
  void Drop(std::span<const ExpertKey> keys);
  LayerKeys TakeOthers(size_t many);
  Result<double> ReadingOf(size_t many);
  Status Disk(MachineCosts& costs);
  Status Waiting(double reading, MachineCosts& costs);
  Status Beside(MachineCosts& costs);

  CostParts parts_;
  Batch again_;
  ExpertLayers layers_;  // of a step; of others the lists below are empty
  std::vector<std::vector<std::vector<ExpertId>>> sets_;  // [set][layer][K], all in slots
  std::vector<std::vector<ExpertId>> routes_;    // [layer][K] of steps, in place of the token's own
  LayerKeys keys_;                               // of the first set, as plans had them
  std::function<void(ExpertLayerId)> at_layer_;  // of steps, once its experts are known
  std::vector<std::vector<ExpertId>> others_;    // [layer], not of the first set, absent ones first
  size_t next_other_ = 0;                        // in each layer, in turn
};

// Of who is in slots. False: of some layer there are fewer than K.
bool CostProbe::ChooseSets() {
  const MoeShape& shape = parts_.shape;
  std::vector<std::vector<ExpertId>> there(shape.n_layer);
  for (uint32_t pool = 0; pool < parts_.catalog.pools.size(); ++pool) {
    for (const ExpertKey key : parts_.residency.contents(pool)) {
      if (key.copy == 0) there[key.layer.value].push_back(key.expert);
    }
  }
  std::mt19937 random(1);
  sets_.assign(kSets, std::vector<std::vector<ExpertId>>(shape.n_layer));
  for (size_t l = layers_.begin; l < layers_.end; ++l) {
    if (there[l].size() < shape.n_used) return false;
    std::ranges::sort(there[l], {}, &ExpertId::value);
    std::ranges::shuffle(there[l], random);
    for (size_t i = 0; i < kSets * shape.n_used; ++i) {
      sets_[i / shape.n_used][l].push_back(there[l][i % there[l].size()]);
    }
  }
  ChooseOthers(std::move(there));
  return true;
}

// What was read just now comes sooner a second time where something between here and the disk keeps
// it, as the host of a virtual machine does.
void CostProbe::ChooseOthers(std::vector<std::vector<ExpertId>> there) {
  const MoeShape& shape = parts_.shape;
  std::mt19937 random(2);
  others_.assign(shape.n_layer, {});
  for (size_t l = layers_.begin; l < layers_.end; ++l) {
    for (uint16_t e = 0; e < shape.n_expert; ++e) {
      if (!std::ranges::contains(sets_.front()[l], ExpertId{e})) others_[l].push_back({e});
    }
    std::ranges::shuffle(others_[l], random);
    std::ranges::stable_partition(others_[l],
                                  [&](ExpertId e) { return !std::ranges::contains(there[l], e); });
  }
}

Result<SeenStep> CostProbe::Step() {
  SeenStep seen;
  PlanObserver watches = [&](const LayerPlan& plan) {
    std::vector<ExpertKey>& keys = seen.keys.emplace_back();
    for (const PlannedExpert& expert : plan.experts) keys.push_back(expert.key);
    seen.expert_seconds += parts_.experts.lane_seconds().host;
  };
  RoutingOverride routes = [&](ExpertLayerId layer, Routing& routing, RoutedAhead&) {
    routing.experts = routes_[layer.value];
    if (at_layer_) at_layer_(layer);
  };
  std::swap(parts_.watchers.plan, watches);
  std::swap(parts_.watchers.routing, routes);
  PhaseStats once;
  Status status = parts_.runner.Repeat(again_, once);
  std::swap(parts_.watchers.plan, watches);
  std::swap(parts_.watchers.routing, routes);
  TRY_STATUS(std::move(status));
  seen.seconds = once.seconds;
  seen.misses = once.misses;
  return seen;
}

// They are in slots then, and no step has computed with them.
Status CostProbe::ReadAgain(const LayerKeys& keys) {
  parts_.residency.Settle();
  for (const std::vector<ExpertKey>& layer : keys) {
    Drop(layer);
    std::vector<Lease> leases;
    for (const ExpertKey key : layer) {
      auto lease = parts_.residency.TryAcquire(key, Use::kPrefetch, Urgency::kDemand);
      if (lease) leases.push_back(*std::move(lease));
    }
    parts_.residency.Drain();
    if (auto error = parts_.residency.TakeError()) return std::unexpected(*std::move(error));
  }
  return {};
}

void CostProbe::Drop(std::span<const ExpertKey> keys) {
  for (const ExpertKey key : keys) parts_.residency.Drop(key);
}

// So many others of each layer, none of them in a slot. They have not been read lately.
LayerKeys CostProbe::TakeOthers(size_t many) {
  LayerKeys taken;
  for (size_t l = layers_.begin; l < layers_.end; ++l) {
    std::vector<ExpertKey>& of_layer = taken.emplace_back();
    for (size_t i = 0; i < many; ++i) {
      const ExpertId other = others_[l][(next_other_ + i) % others_[l].size()];
      of_layer.push_back({.layer = {static_cast<uint16_t>(l)}, .expert = other});
    }
    Drop(of_layer);
  }
  next_other_ += many;
  return taken;
}

// Seconds of a layer in which `many` others are asked for at once and read while nothing else is
// done, on average over layers.
Result<double> CostProbe::ReadingOf(size_t many) {
  parts_.residency.Settle();
  double seconds = 0.0;
  for (const std::vector<ExpertKey>& of_layer : TakeOthers(many)) {
    const SteadyClock::time_point begun = SteadyClock::now();
    std::vector<Lease> leases;
    for (const ExpertKey key : of_layer) {
      auto lease = parts_.residency.TryAcquire(key, Use::kPrefetch, Urgency::kDemand);
      if (lease) leases.push_back(*std::move(lease));
    }
    parts_.residency.Drain();
    if (auto error = parts_.residency.TakeError()) return std::unexpected(*std::move(error));
    seconds += SecondsFrom(begun);
  }
  return seconds / static_cast<double>(layers_.size());
}

// One and several in turn, since what the disk gives changes within seconds.
Status CostProbe::Disk(MachineCosts& costs) {
  double bytes = 0.0;  // of an expert, on average over layers
  for (const std::vector<ExpertKey>& layer : keys_) {
    bytes += static_cast<double>(BytesOf(parts_.catalog, layer.back())) /
             static_cast<double>(keys_.size());
  }
  const size_t many = std::max<size_t>(parts_.shape.n_used, 2);
  const auto has_few = [&](const auto& others) { return others.size() < many; };
  const auto of_steps = std::span(others_).subspan(layers_.begin, layers_.size());
  if (std::ranges::any_of(of_steps, has_few)) return {};
  std::vector<double> one;
  std::vector<double> all;
  const SteadyClock::time_point begun = SteadyClock::now();
  for (int round = 0; IsRoundLeft(round, begun); ++round) {
    for (const auto& [asked, to] : {std::pair{size_t{1}, &one}, {many, &all}}) {
      TRY(const double seconds, ReadingOf(asked));
      to->push_back(seconds);
    }
  }
  const double first = Median(std::move(one));
  const double more = Median(std::move(all)) - first;
  if (more <= 0.0) return {};
  costs.bandwidth = bytes * static_cast<double>(many - 1) / more;
  costs.read_latency = std::max(0.0, first - bytes / costs.bandwidth);
  return Waiting(first, costs);
}

// Steps each of whose layers lacks one expert. It computes with the others meanwhile, and with that
// one when it is there:
//   step - resident step = layers * (reading + waiting + one expert - all experts)
Status CostProbe::Waiting(double reading, MachineCosts& costs) {
  const double layers = layers_.size();
  const double experts = costs.compute * costs.expert_share / layers;
  const double one = experts / static_cast<double>(parts_.shape.n_used);
  std::vector<double> waiting;
  const SteadyClock::time_point begun = SteadyClock::now();
  for (int round = 0; IsRoundLeft(round, begun); ++round) {
    parts_.residency.Settle();
    routes_ = sets_.front();
    for (const std::vector<ExpertKey>& other : TakeOthers(1)) {
      routes_[other.front().layer.value].back() = other.front().expert;
    }
    TRY(const SeenStep seen, Step());
    if (seen.misses != layers_.size()) continue;  // a lease kept one
    waiting.push_back((seen.seconds - costs.compute) / layers -
                      (std::max(reading, experts - one) + one * (1.0 + costs.first_use) - experts));
  }
  routes_ = sets_.front();
  if (!waiting.empty()) costs.layer_wait = std::max(0.0, Median(std::move(waiting)));
  return {};
}

// Steps that lack nothing, while others are prefetched without a pause, as much as the disk gives.
Status CostProbe::Beside(MachineCosts& costs) {
  std::vector<Lease> reading;
  double bytes = 0.0;  // that have landed
  const auto read_on = [&](ExpertLayerId layer) {
    std::erase_if(reading, [&](const Lease& lease) {
      if (lease.is_complete()) bytes += static_cast<double>(BytesOf(parts_.catalog, lease.key()));
      return lease.is_complete();
    });
    while (reading.size() < kReadsBeside) {
      const std::vector<ExpertId>& others = others_[layer.value];
      const ExpertKey key{.layer = layer, .expert = others[next_other_++ % others.size()]};
      // A layer needs slots for its own.
      if (parts_.residency.slots(parts_.catalog.copy(key).pool) <=
          reading.size() + parts_.shape.n_used) {
        break;
      }
      if (std::ranges::contains(reading, key, &Lease::key)) break;  // there are few others
      Drop({&key, 1});
      auto lease = parts_.residency.TryAcquire(key, Use::kPrefetch, Urgency::kSpeculative);
      if (!lease || lease->is_complete()) break;
      reading.push_back(*std::move(lease));
    }
  };
  parts_.residency.Settle();
  std::vector<double> steps;
  const SteadyClock::time_point begun = SteadyClock::now();
  at_layer_ = read_on;
  Status status;
  for (size_t i = 0; status && i < kStepsBeside; ++i) {
    const Result<SeenStep> step = Step();
    if (!step) status = std::unexpected(step.error());
    if (step && step->misses == 0) steps.push_back(step->seconds);
  }
  at_layer_ = {};
  const double seconds = SecondsFrom(begun);
  reading.clear();
  TRY_STATUS(std::move(status));
  if (steps.empty() || bytes <= 0.0) return {};
  costs.compute_beside = std::max(1.0, Median(std::move(steps)) / costs.compute);
  costs.read_beside = std::max(1.0, costs.bandwidth * seconds / bytes);
  return {};
}

// With every expert in its slot, as tokens find them that are used now and then.
Status CostProbe::Alone(MachineCosts& costs) {
  std::vector<double> seconds;
  std::vector<double> shares;
  for (size_t pass = 0; pass < kPasses; ++pass) {
    for (size_t set = 0; set < kSets; ++set) {
      routes_ = sets_[set];
      TRY(SeenStep seen, Step());
      if (set == 0) keys_ = std::move(seen.keys);
      if (pass < kPassesBefore || seen.misses > 0) continue;
      seconds.push_back(seen.seconds);
      shares.push_back(seen.expert_seconds / seen.seconds);
    }
  }
  routes_ = sets_.front();
  costs.compute = Median(std::move(seconds));
  costs.expert_share = std::clamp(Median(std::move(shares)), 0.0, 1.0);
  return {};
}

// The first two of each expert since it was read.
Status CostProbe::Uses(MachineCosts& costs) {
  const double experts = costs.compute * costs.expert_share;
  std::vector<double> first;
  std::vector<double> second;
  for (int round = 0; round < kRounds; ++round) {
    TRY_STATUS(ReadAgain(keys_));
    for (std::vector<double>* const use : {&first, &second}) {
      TRY(const SeenStep seen, Step());
      if (seen.misses == 0) use->push_back(seen.seconds);
    }
  }
  if (experts <= 0.0 || first.empty() || second.empty()) return {};
  costs.first_use = std::max(0.0, (Median(std::move(first)) - costs.compute) / experts);
  costs.second_use = std::max(0.0, (Median(std::move(second)) - costs.compute) / experts);
  return {};
}

Result<std::optional<MachineCosts>> CostProbe::Measure() {
  MachineCosts costs{.io_depth = parts_.queue.options().max_in_flight,
                     .max_read = static_cast<uint32_t>(parts_.queue.options().max_request)};
  if (!ChooseSets()) return std::optional<MachineCosts>();
  TRY_STATUS(Alone(costs));
  if (costs.compute <= 0.0) return std::optional<MachineCosts>();  // they have no room together
  TRY_STATUS(Uses(costs));
  TRY_STATUS(Disk(costs));
  if (costs.bandwidth > 0.0) TRY_STATUS(Beside(costs));
  return std::optional(costs);
}

}  // namespace

Result<std::optional<MachineCosts>> MeasureCosts(const CostParts& parts, const Batch& again) {
  return CostProbe(parts, again).Measure();
}

}  // namespace moestro
