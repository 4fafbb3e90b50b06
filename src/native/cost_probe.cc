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

#include "base/distribution.h"
#include "native/catalog.h"

namespace moestro {
namespace {

// Sets of a token's experts that take turns, so that no expert has just been used. Passes count
// after every expert has been used kPassesBefore times.
constexpr size_t kSets = 5;
constexpr size_t kPasses = 4;
constexpr size_t kPassesBefore = 2;
constexpr int kRounds = 3;  // rounds of reading a token's experts
// Rounds of Disk() and Waiting(); fewer, but kRounds at least, if they take long.
constexpr int kDiskRounds = 9;
constexpr double kLongDiskRounds = 5.0;  // seconds
constexpr size_t kStepsBeside = 12;      // steps that compute while the disk reads
constexpr size_t kReadsBeside = 8;       // experts under way during these steps

using SteadyClock = std::chrono::steady_clock;
using LayerKeys = std::vector<std::vector<ExpertKey>>;  // [layer]

double SecondsFrom(SteadyClock::time_point begun) {
  return std::chrono::duration<double>(SteadyClock::now() - begun).count();
}

bool IsRoundLeft(int round, SteadyClock::time_point begun) {
  return round < kRounds || (round < kDiskRounds && SecondsFrom(begun) < kLongDiskRounds);
}

// The measurements of one more step of the last token.
struct SeenStep {
  double seconds = 0.0;
  double expert_seconds = 0.0;
  uint64_t misses = 0;
  LayerKeys keys = {};
};

class CostProbe {
 public:
  explicit CostProbe(const CostParts& parts)
      : parts_(parts), layers_(parts.shape.decode_layers()) {}

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
  ExpertLayers layers_;  // layers of a decode step; the lists below are empty for other layers
  std::vector<std::vector<std::vector<ExpertId>>> sets_;  // [set][layer][K], all in slots
  // [layer][K] that steps use in place of the routers' choice
  std::vector<std::vector<ExpertId>> routes_;
  LayerKeys keys_;                               // experts of the first set, in the order of plans
  std::function<void(ExpertLayerId)> at_layer_;  // called once a layer's routing is known
  // [layer], experts outside the first set, absent ones first
  std::vector<std::vector<ExpertId>> others_;
  // Index in others_, modulo the size of each layer's list.
  size_t next_other_ = 0;
};

// Draws the sets from the experts in slots. False: some layer has fewer than K experts in slots.
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

// Lists absent experts first: a second read of an expert that was read lately is faster where a
// cache lies between this process and the disk, as in the host of a virtual machine.
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
  Status status = parts_.repeat(once);
  std::swap(parts_.watchers.plan, watches);
  std::swap(parts_.watchers.routing, routes);
  TRY_STATUS(std::move(status));
  seen.seconds = once.seconds;
  seen.misses = once.misses;
  return seen;
}

// Reads the experts again. Afterwards experts are in slots, and no step has computed with them.
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

// Takes `many` other experts of each layer in turn, so that none was read lately, and drops them
// from slots.
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

// Seconds that a layer takes to read `many` other experts, requested at once, while nothing
// computes; on average over layers.
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

// Measures one read and `many` reads in turn, since the bandwidth of a disk changes within seconds.
Status CostProbe::Disk(MachineCosts& costs) {
  double bytes = 0.0;  // bytes of an expert, on average over layers
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

// Repeats steps in which each layer lacks one expert. A layer computes the other experts during the
// read, and the missing expert afterwards:
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
    if (seen.misses != layers_.size()) continue;  // a lease kept an expert in its slot
    waiting.push_back((seen.seconds - costs.compute) / layers -
                      (std::max(reading, experts - one) + one * (1.0 + costs.first_use) - experts));
  }
  routes_ = sets_.front();
  if (!waiting.empty()) costs.layer_wait = std::max(0.0, Median(std::move(waiting)));
  return {};
}

// Repeats steps that lack nothing while other experts are prefetched without a pause, at the disk's
// full bandwidth.
Status CostProbe::Beside(MachineCosts& costs) {
  std::vector<Lease> reading;
  double bytes = 0.0;  // bytes of prefetches that have landed
  const auto read_on = [&](ExpertLayerId layer) {
    std::erase_if(reading, [&](const Lease& lease) {
      if (lease.is_complete()) bytes += static_cast<double>(BytesOf(parts_.catalog, lease.key()));
      return lease.is_complete();
    });
    while (reading.size() < kReadsBeside) {
      const std::vector<ExpertId>& others = others_[layer.value];
      const ExpertKey key{.layer = layer, .expert = others[next_other_++ % others.size()]};
      // The layer needs slots for its n_used experts.
      if (parts_.residency.slots(parts_.catalog.copy(key).pool) <=
          reading.size() + parts_.shape.n_used) {
        break;
      }
      if (std::ranges::contains(reading, key, &Lease::key)) break;  // others_ has few experts
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

// Repeats steps with every expert in a slot, where experts have been used, but not in the last
// step.
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

// Measures the first and the second use of each expert after its read.
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
  // Slots do not hold all sets together.
  if (costs.compute <= 0.0) return std::optional<MachineCosts>();
  TRY_STATUS(Uses(costs));
  TRY_STATUS(Disk(costs));
  if (costs.bandwidth > 0.0) TRY_STATUS(Beside(costs));
  return std::optional(costs);
}

}  // namespace

Result<std::optional<MachineCosts>> MeasureCosts(const CostParts& parts) {
  return CostProbe(parts).Measure();
}

}  // namespace moestro
