// SPDX-License-Identifier: MIT
#include "decide/devices/lane_planner.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <limits>
#include <utility>

#include "base/result.h"

namespace moestro {
namespace {

struct NamedMode {
  PlaceMode mode;
  std::string_view name;
};
constexpr std::array kModes = {
    NamedMode{PlaceMode::kAuto, "auto"}, NamedMode{PlaceMode::kGpuCentric, "gpu-centric"},
    NamedMode{PlaceMode::kCooperative, "cooperative"}, NamedMode{PlaceMode::kCpu, "cpu"}};

// Gains below this share of a layer's time are ignored, so that rounding decides nothing.
constexpr double kLeastShare = 1e-9;

bool is_better(double seconds, double than) { return seconds < than * (1.0 - kLeastShare); }

// Slots left for copies while places are chosen.
class Room {
 public:
  explicit Room(std::span<const std::vector<uint32_t>> room) : left_(room.begin(), room.end()) {}

  size_t devices() const { return left_.size(); }
  bool has(const LaneJob& job, uint32_t device) const {
    return job.pool < left_[device].size() && left_[device][job.pool] > 0;
  }
  // Takes a slot for a copied job; other jobs take none.
  void Take(const LaneJob& job, Site site) {
    if (site.place != Place::kCopied) return;
    CHECK(has(job, site.device));
    --left_[site.device][job.pool];
  }
  void GiveBack(const LaneJob& job, Site site) {
    if (site.place == Place::kCopied) ++left_[site.device][job.pool];
  }

 private:
  std::vector<std::vector<uint32_t>> left_;
};

// Sites of a job beside the CPU: the device that has it, or every device whose slots have room for
// a copy.
std::vector<Site> SitesOnDevices(const LaneJob& job, const Room& left) {
  if (job.on_device) return {{.place = Place::kDevice, .device = *job.on_device}};
  std::vector<Site> sites;
  for (uint32_t d = 0; d < left.devices(); ++d) {
    if (left.has(job, d)) sites.push_back({.place = Place::kCopied, .device = d});
  }
  return sites;
}

// The site whose device ends first with the job.
Site EarliestSite(std::span<const LaneJob> jobs, std::vector<Site> chosen, size_t job,
                  std::span<const Site> candidates, const LatencyModel& model) {
  Site best = candidates.front();
  double earliest = std::numeric_limits<double>::infinity();
  for (const Site site : candidates) {
    chosen[job] = site;
    const double done = PriceLanes(jobs, chosen, model).devices[site.device].compute;
    if (!is_better(done, earliest)) continue;
    best = site;
    earliest = done;
  }
  return best;
}

std::vector<Site> FixedSites(std::span<const LaneJob> jobs, const LatencyModel& model,
                             PlaceMode mode, std::span<const std::vector<uint32_t>> room) {
  Room left(room);
  std::vector<Site> chosen(jobs.size());
  if (mode == PlaceMode::kCpu) return chosen;
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (!jobs[i].on_device && mode != PlaceMode::kGpuCentric) continue;
    const std::vector<Site> candidates = SitesOnDevices(jobs[i], left);
    if (candidates.empty()) continue;
    chosen[i] = candidates.size() == 1 ? candidates.front()
                                       : EarliestSite(jobs, chosen, i, candidates, model);
    left.Take(jobs[i], chosen[i]);
  }
  return chosen;
}

double PriceOfSlots(std::span<const LaneJob> jobs, std::span<const Site> sites) {
  double price = 0.0;
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (sites[i].place != Place::kCopied || jobs[i].slot_prices.empty()) continue;
    price += jobs[i].slot_prices[sites[i].device];
  }
  return price;
}

double CostOf(std::span<const LaneJob> jobs, std::span<const Site> sites,
              const LatencyModel& model) {
  return PriceLanes(jobs, sites, model).seconds() + PriceOfSlots(jobs, sites);
}

// Assigns by longest processing time first: each job, the longest first, to the side that then ends
// sooner.
std::vector<Site> LongestFirst(std::span<const LaneJob> jobs, const LatencyModel& model,
                               std::span<const std::vector<uint32_t>> room) {
  std::vector<size_t> order(jobs.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, std::greater(), [&](size_t i) {
    return model.host.Seconds(jobs[i].bytes, jobs[i].rows);
  });
  Room left(room);
  std::vector<Site> sites(jobs.size());
  std::vector<LaneJob> so_far;
  std::vector<Site> so_far_sites;
  for (const size_t i : order) {
    so_far.push_back(jobs[i]);
    so_far_sites.emplace_back();
    double least = CostOf(so_far, so_far_sites, model);
    for (const Site site : SitesOnDevices(jobs[i], left)) {
      so_far_sites.back() = site;
      const double cost = CostOf(so_far, so_far_sites, model);
      if (!is_better(cost, least)) continue;
      sites[i] = site;
      least = cost;
    }
    so_far_sites.back() = sites[i];
    left.Take(jobs[i], sites[i]);
  }
  return sites;
}

// Moves one job at a time to another side, always the one that gains most, as long as it gains.
void Improve(std::span<const LaneJob> jobs, const LatencyModel& model,
             std::span<const std::vector<uint32_t>> room, LanePlan& plan) {
  Room left(room);
  for (size_t i = 0; i < jobs.size(); ++i) left.Take(jobs[i], plan.sites[i]);
  // Every move makes the plan cheaper, so the loop ends; the limit bounds the time of deciding.
  for (size_t moves = 0; moves < jobs.size(); ++moves) {
    std::optional<size_t> best;
    Site to;
    double least = plan.cost();
    for (size_t i = 0; i < jobs.size(); ++i) {
      const Site here = plan.sites[i];
      std::vector<Site> others = SitesOnDevices(jobs[i], left);
      if (here.place != Place::kHost) {
        std::erase(others, here);
        others.emplace_back();
      }
      for (const Site other : others) {
        plan.sites[i] = other;
        const double cost = CostOf(jobs, plan.sites, model);
        if (!is_better(cost, least)) continue;
        best = i;
        to = other;
        least = cost;
      }
      plan.sites[i] = here;
    }
    if (!best) return;
    left.GiveBack(jobs[*best], plan.sites[*best]);
    left.Take(jobs[*best], to);
    plan.sites[*best] = to;
    plan.times = PriceLanes(jobs, plan.sites, model);
    plan.price = PriceOfSlots(jobs, plan.sites);
  }
}

// Whether rows leave the first device for the job.
bool LeavesFirst(Site site) { return site.place == Place::kHost || site.device != 0; }

// Prices the experts that a device has, then those that are copied to it: first those in memory,
// then those that the disk brings. The device waits for the last copy.
LaneTimes::Device PriceDevice(std::span<const LaneJob> jobs, std::span<const Site> sites,
                              uint32_t device, const LatencyModel& model, double& disk) {
  const DeviceCosts& costs = model.devices[device];
  const bool uses_host = std::ranges::contains(sites, Place::kHost, &Site::place);
  const double copy_factor = uses_host ? costs.copy_beside : 1.0;
  LaneTimes::Device times;
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (sites[i] != Site{.place = Place::kDevice, .device = device}) continue;
    if (times.compute == 0.0) times.compute = costs.launch;
    times.compute += model.OnDevice(device, jobs[i].bytes, jobs[i].rows);
  }
  double copied = 0.0;  // seconds of computing copied experts
  for (const bool in_memory : {true, false}) {
    for (size_t i = 0; i < jobs.size(); ++i) {
      if (sites[i] != Site{.place = Place::kCopied, .device = device}) continue;
      if (jobs[i].in_memory != in_memory) continue;
      if (!in_memory) {
        disk += model.disk.Seconds(jobs[i].bytes);
        times.copy = std::max(times.copy, disk);
      }
      times.copy += copy_factor * costs.copy.Seconds(jobs[i].bytes);
      copied += model.OnDevice(device, jobs[i].bytes, jobs[i].rows);
    }
  }
  if (copied > 0.0) times.compute = std::max(times.compute, times.copy) + costs.launch + copied;
  return times;
}

// Seconds of the engine's thread in the calls of devices that compute beside the CPU.
double CallSeconds(std::span<const Site> sites, const LatencyModel& model) {
  if (!std::ranges::contains(sites, Place::kHost, &Site::place)) return 0.0;
  double seconds = 0.0;
  for (uint32_t d = 0; d < model.devices.size(); ++d) {
    const auto is_its = [d](Site s) { return s.place != Place::kHost && s.device == d; };
    if (std::ranges::any_of(sites, is_its)) seconds += model.CallSeconds(d);
  }
  return seconds;
}

}  // namespace

Result<PlaceMode> ParsePlaceMode(std::string_view name) {
  for (const NamedMode& known : kModes) {
    if (known.name == name) return known.mode;
  }
  return Fail(Errc::kUsage,
              "'{}' is no way to place experts; known: auto, gpu-centric, "
              "cooperative, cpu",
              name);
}

std::string_view NameOf(PlaceMode mode) {
  return std::ranges::find(kModes, mode, &NamedMode::mode)->name;
}

LaneTimes PriceLanes(std::span<const LaneJob> jobs, std::span<const Site> sites,
                     const LatencyModel& model) {
  CHECK(jobs.size() == sites.size());
  LaneTimes times;
  times.devices.resize(model.devices.size());
  for (uint32_t d = 0; d < times.devices.size(); ++d) {
    times.devices[d] = PriceDevice(jobs, sites, d, model, times.disk);
  }
  const bool uses_device =
      std::ranges::any_of(sites, [](Place p) { return p != Place::kHost; }, &Site::place);
  if (std::ranges::any_of(sites, LeavesFirst)) {
    uint64_t pairs = 0;
    for (const LaneJob& job : jobs) pairs += job.rows;
    times.border = model.BorderSeconds(pairs);
  }
  const double host_factor = uses_device ? model.host_beside : 1.0;
  times.calls = CallSeconds(sites, model);
  const bool uses_host = std::ranges::contains(sites, Place::kHost, &Site::place);
  times.host = times.calls + (uses_host ? model.host_begin : 0.0);
  // The CPU computes experts in memory, then those that the disk brings.
  for (const bool in_memory : {true, false}) {
    for (size_t i = 0; i < jobs.size(); ++i) {
      if (sites[i].place != Place::kHost || jobs[i].in_memory != in_memory) continue;
      if (!in_memory) {
        times.disk += model.disk.Seconds(jobs[i].bytes);
        times.host = std::max(times.host, times.disk);
      }
      times.host += host_factor * model.host.Seconds(jobs[i].bytes, jobs[i].rows);
    }
  }
  return times;
}

LanePlan PlanLanes(std::span<const LaneJob> jobs, const LatencyModel& model, PlaceMode mode,
                   std::span<const std::vector<uint32_t>> room) {
  CHECK(room.size() == model.devices.size());
  const auto priced = [&](std::vector<Site> sites) {
    const LaneTimes times = PriceLanes(jobs, sites, model);
    const double price = PriceOfSlots(jobs, sites);
    return LanePlan{.sites = std::move(sites), .times = times, .price = price};
  };
  if (mode != PlaceMode::kAuto) return priced(FixedSites(jobs, model, mode, room));
  // Plans without copies come first, because a later plan must be better to win.
  LanePlan best = priced(FixedSites(jobs, model, PlaceMode::kCooperative, room));
  const auto consider = [&](std::vector<Site> sites) {
    LanePlan other = priced(std::move(sites));
    if (is_better(other.cost(), best.cost())) best = std::move(other);
  };
  consider(FixedSites(jobs, model, PlaceMode::kCpu, room));
  consider(LongestFirst(jobs, model, room));
  consider(FixedSites(jobs, model, PlaceMode::kGpuCentric, room));
  // One device that is much faster than the others may do best alone.
  for (size_t d = 0; room.size() > 1 && d < room.size(); ++d) {
    std::vector<std::vector<uint32_t>> alone(room.size());
    alone[d] = room[d];
    consider(FixedSites(jobs, model, PlaceMode::kGpuCentric, alone));
  }
  Improve(jobs, model, room, best);
  return best;
}

}  // namespace moestro
