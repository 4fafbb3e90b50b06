// SPDX-License-Identifier: MIT
#include "decide/devices/lane_planner.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

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
  explicit Room(std::span<const std::vector<uint32_t>> room) : devices_(room.size()) {
    for (const std::vector<uint32_t>& its : room) pools_ = std::max(pools_, its.size());
    left_.resize(devices_ * pools_);
    for (size_t d = 0; d < devices_; ++d) {
      std::ranges::copy(room[d], left_.begin() + static_cast<ptrdiff_t>(d * pools_));
    }
  }

  size_t devices() const { return devices_; }
  bool has(const LaneJob& job, uint32_t device) const {
    return job.pool < pools_ && left_[At(job, device)] > 0;
  }
  // Takes a slot for a copied job; other jobs take none.
  void Take(const LaneJob& job, Site site) {
    if (site.place != Place::kCopied) return;
    CHECK(has(job, site.device));
    --left_[At(job, site.device)];
  }
  void GiveBack(const LaneJob& job, Site site) {
    if (site.place == Place::kCopied) ++left_[At(job, site.device)];
  }

 private:
  size_t At(const LaneJob& job, uint32_t device) const { return device * pools_ + job.pool; }

  size_t devices_ = 0;
  size_t pools_ = 0;
  std::vector<uint32_t> left_;  // [device][pool]
};

// Seconds of each job on each lane. A plan weighs dozens of assignments of the same jobs, in the
// middle of a decoded layer, so an assignment is priced without a look into the model's costs or
// an allocation.
class LanePrices {
 public:
  LanePrices(std::span<const LaneJob> jobs, const LatencyModel& model)
      : jobs_(jobs), model_(model), all_(jobs.size()) {
    std::iota(all_.begin(), all_.end(), size_t{0});
    times_.devices.resize(model.devices.size());
    parts_.resize(model.devices.size());
    for (const LaneJob& job : jobs) {
      host_.push_back({.compute = model.host.Seconds(job.bytes, job.rows),
                       .brought = job.in_memory ? 0.0 : model.disk.Seconds(job.bytes)});
      is_all_in_memory_ = is_all_in_memory_ && job.in_memory;
      for (uint32_t d = 0; d < model.devices.size(); ++d) {
        there_.push_back({.compute = model.OnDevice(d, job.bytes, job.rows),
                          .brought = model.devices[d].copy.Seconds(job.bytes)});
      }
    }
  }

  std::span<const LaneJob> jobs() const { return jobs_; }
  std::span<const size_t> all() const { return all_; }
  double host_seconds(size_t job) const { return host_[job].compute; }

  // The times of the lanes if the jobs `of`, in this order, run at their sites and no other job
  // does. sites: [job]. The result is valid until the next call.
  const LaneTimes& Times(std::span<const size_t> of, std::span<const Site> sites);
  // The price of the slots that copies take.
  double PriceOfSlots(std::span<const size_t> of, std::span<const Site> sites) const;
  double Cost(std::span<const size_t> of, std::span<const Site> sites) {
    return Times(of, sites).seconds() + PriceOfSlots(of, sites);
  }

 private:
  struct Seconds {
    double compute = 0.0;
    double brought = 0.0;  // of the disk's read, or of the copy to the device
  };
  // A device's part of an assignment.
  struct Part {
    bool has_own = false;  // experts that the device has
    bool has_copied = false;
    double own = 0.0;     // seconds of computing what the device has
    double copied = 0.0;  // seconds of computing copied experts
    double copies = 0.0;  // seconds of the copies from memory
    bool is_idle() const { return !has_own && !has_copied; }
  };
  // The CPU's part.
  struct HostPart {
    bool is_idle = true;
    double in_memory = 0.0;    // seconds of computing experts in memory
    uint64_t pairs = 0;        // of the layer
    bool leave_first = false;  // rows leave the first device
  };
  const Seconds& There(size_t job, uint32_t device) const {
    return there_[job * parts_.size() + device];
  }
  void SumParts(std::span<const size_t> of, std::span<const Site> sites);
  void PriceDevice(std::span<const size_t> of, std::span<const Site> sites, uint32_t device);
  void PriceHost(std::span<const size_t> of, std::span<const Site> sites);

  std::span<const LaneJob> jobs_;
  const LatencyModel& model_;
  std::vector<size_t> all_;     // every job
  std::vector<Seconds> host_;   // [job]
  std::vector<Seconds> there_;  // [job][device]
  bool is_all_in_memory_ = true;
  // Times and sums of the assignment that is priced:
  LaneTimes times_;
  std::vector<Part> parts_;  // [device]
  HostPart host_part_;
};

// Sums up what takes its time whatever the order of the experts.
void LanePrices::SumParts(std::span<const size_t> of, std::span<const Site> sites) {
  std::ranges::fill(parts_, Part{});
  host_part_ = {};
  for (const size_t i : of) {
    const Site site = sites[i];
    host_part_.pairs += jobs_[i].rows;
    if (site.place == Place::kHost) {
      host_part_.is_idle = false;
      host_part_.leave_first = true;
      if (jobs_[i].in_memory) host_part_.in_memory += host_[i].compute;
      continue;
    }
    host_part_.leave_first = host_part_.leave_first || site.device != 0;
    Part& part = parts_[site.device];
    const Seconds& seconds = There(i, site.device);
    if (site.place == Place::kDevice) {
      part.has_own = true;
      part.own += seconds.compute;
    } else {
      part.has_copied = true;
      part.copied += seconds.compute;
      if (jobs_[i].in_memory) part.copies += seconds.brought;
    }
  }
}

// Prices the experts that a device has, then those that are copied to it: first those in memory,
// then those that the disk brings. The device waits for the last copy.
void LanePrices::PriceDevice(std::span<const size_t> of, std::span<const Site> sites,
                             uint32_t device) {
  const DeviceCosts& costs = model_.devices[device];
  const Part& part = parts_[device];
  LaneTimes::Device& times = times_.devices[device];
  times = {};
  if (part.has_own) times.compute = costs.launch + part.own;
  if (!part.has_copied) return;
  const double copy_factor = host_part_.is_idle ? 1.0 : costs.copy_beside;
  times.copy = copy_factor * part.copies;
  for (const size_t i : is_all_in_memory_ ? std::span<const size_t>() : of) {
    if (jobs_[i].in_memory || sites[i] != Site{.place = Place::kCopied, .device = device}) continue;
    times_.disk += host_[i].brought;
    times.copy = std::max(times.copy, times_.disk) + copy_factor * There(i, device).brought;
  }
  times.compute = std::max(times.compute, times.copy) + costs.launch + part.copied;
}

// Prices the experts in memory, then those that the disk brings.
void LanePrices::PriceHost(std::span<const size_t> of, std::span<const Site> sites) {
  times_.calls = 0.0;
  times_.host = 0.0;
  if (host_part_.is_idle) return;
  // Seconds of the engine's thread in the calls of devices that compute beside the CPU.
  bool is_alone = true;
  for (uint32_t d = 0; d < parts_.size(); ++d) {
    if (parts_[d].is_idle()) continue;
    is_alone = false;
    times_.calls += model_.CallSeconds(d);
  }
  const double host_factor = is_alone ? 1.0 : model_.host_beside;
  times_.host = times_.calls + model_.host_begin + host_factor * host_part_.in_memory;
  for (const size_t i : is_all_in_memory_ ? std::span<const size_t>() : of) {
    if (jobs_[i].in_memory || sites[i].place != Place::kHost) continue;
    times_.disk += host_[i].brought;
    times_.host = std::max(times_.host, times_.disk) + host_factor * host_[i].compute;
  }
}

const LaneTimes& LanePrices::Times(std::span<const size_t> of, std::span<const Site> sites) {
  SumParts(of, sites);
  times_.disk = 0.0;
  for (uint32_t d = 0; d < parts_.size(); ++d) PriceDevice(of, sites, d);
  times_.border = host_part_.leave_first ? model_.BorderSeconds(host_part_.pairs) : 0.0;
  PriceHost(of, sites);
  return times_;
}

double LanePrices::PriceOfSlots(std::span<const size_t> of, std::span<const Site> sites) const {
  double price = 0.0;
  for (const size_t i : of) {
    if (sites[i].place != Place::kCopied || jobs_[i].slot_prices.empty()) continue;
    price += jobs_[i].slot_prices[sites[i].device];
  }
  return price;
}

// Finds the sites of a job beside the CPU: the device that has it, or every device whose slots have
// room for a copy.
void FindSites(const LaneJob& job, const Room& left, std::vector<Site>& sites) {
  sites.clear();
  if (job.on_device) {
    sites.push_back({.place = Place::kDevice, .device = *job.on_device});
    return;
  }
  for (uint32_t d = 0; d < left.devices(); ++d) {
    if (left.has(job, d)) sites.push_back({.place = Place::kCopied, .device = d});
  }
}

// The site whose device ends first with the job.
Site EarliestSite(LanePrices& prices, std::vector<Site>& chosen, size_t job,
                  std::span<const Site> candidates) {
  Site best = candidates.front();
  double earliest = std::numeric_limits<double>::infinity();
  for (const Site site : candidates) {
    chosen[job] = site;
    const double done = prices.Times(prices.all(), chosen).devices[site.device].compute;
    if (!is_better(done, earliest)) continue;
    best = site;
    earliest = done;
  }
  return best;
}

std::vector<Site> FixedSites(LanePrices& prices, PlaceMode mode, Room left) {
  const std::span<const LaneJob> jobs = prices.jobs();
  std::vector<Site> chosen(jobs.size());
  if (mode == PlaceMode::kCpu) return chosen;
  std::vector<Site> candidates;
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (!jobs[i].on_device && mode != PlaceMode::kGpuCentric) continue;
    FindSites(jobs[i], left, candidates);
    if (candidates.empty()) continue;
    chosen[i] =
        candidates.size() == 1 ? candidates.front() : EarliestSite(prices, chosen, i, candidates);
    left.Take(jobs[i], chosen[i]);
  }
  return chosen;
}

// Assigns by longest processing time first: each job, the longest first, to the side that then ends
// sooner.
std::vector<Site> LongestFirst(LanePrices& prices, Room left) {
  const std::span<const LaneJob> jobs = prices.jobs();
  std::vector<size_t> order(prices.all().begin(), prices.all().end());
  std::ranges::stable_sort(order, std::greater(), [&](size_t i) { return prices.host_seconds(i); });
  std::vector<Site> sites(jobs.size());
  std::vector<Site> candidates;
  for (size_t n = 0; n < order.size(); ++n) {
    const size_t i = order[n];
    const auto so_far = std::span(order).first(n + 1);
    Site best;
    double least = prices.Cost(so_far, sites);
    FindSites(jobs[i], left, candidates);
    for (const Site site : candidates) {
      sites[i] = site;
      const double cost = prices.Cost(so_far, sites);
      if (!is_better(cost, least)) continue;
      best = site;
      least = cost;
    }
    sites[i] = best;
    left.Take(jobs[i], best);
  }
  return sites;
}

// Moves one job at a time to another side, always the one that gains most, as long as it gains.
void Improve(LanePrices& prices, Room left, std::vector<Site>& sites) {
  const std::span<const LaneJob> jobs = prices.jobs();
  for (size_t i = 0; i < jobs.size(); ++i) left.Take(jobs[i], sites[i]);
  double least = prices.Cost(prices.all(), sites);
  std::vector<Site> others;
  // Every move makes the plan cheaper, so the loop ends; the limit bounds the time of deciding.
  for (size_t moves = 0; moves < jobs.size(); ++moves) {
    std::optional<size_t> best;
    Site to;
    for (size_t i = 0; i < jobs.size(); ++i) {
      const Site here = sites[i];
      FindSites(jobs[i], left, others);
      if (here.place != Place::kHost) {
        std::erase(others, here);
        others.emplace_back();
      }
      for (const Site other : others) {
        sites[i] = other;
        const double cost = prices.Cost(prices.all(), sites);
        if (!is_better(cost, least)) continue;
        best = i;
        to = other;
        least = cost;
      }
      sites[i] = here;
    }
    if (!best) return;
    left.GiveBack(jobs[*best], sites[*best]);
    left.Take(jobs[*best], to);
    sites[*best] = to;
  }
}

// Sites of the least cost that the search finds.
std::vector<Site> AutoSites(LanePrices& prices, std::span<const std::vector<uint32_t>> room) {
  const Room left(room);
  // Plans without copies come first, because a later plan must be better to win.
  std::vector<Site> best = FixedSites(prices, PlaceMode::kCooperative, left);
  double least = prices.Cost(prices.all(), best);
  const auto consider = [&](std::vector<Site> sites) {
    const double cost = prices.Cost(prices.all(), sites);
    if (!is_better(cost, least)) return;
    best = std::move(sites);
    least = cost;
  };
  consider(FixedSites(prices, PlaceMode::kCpu, left));
  consider(LongestFirst(prices, left));
  consider(FixedSites(prices, PlaceMode::kGpuCentric, left));
  // One device that is much faster than the others may do best alone.
  for (size_t d = 0; room.size() > 1 && d < room.size(); ++d) {
    std::vector<std::vector<uint32_t>> alone(room.size());
    alone[d] = room[d];
    consider(FixedSites(prices, PlaceMode::kGpuCentric, Room(alone)));
  }
  Improve(prices, left, best);
  return best;
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
  LanePrices prices(jobs, model);
  return prices.Times(prices.all(), sites);
}

LanePlan PlanLanes(std::span<const LaneJob> jobs, const LatencyModel& model, PlaceMode mode,
                   std::span<const std::vector<uint32_t>> room) {
  CHECK(room.size() == model.devices.size());
  LanePrices prices(jobs, model);
  LanePlan plan{.sites = mode == PlaceMode::kAuto ? AutoSites(prices, room)
                                                  : FixedSites(prices, mode, Room(room))};
  plan.times = prices.Times(prices.all(), plan.sites);
  plan.price = prices.PriceOfSlots(prices.all(), plan.sites);
  return plan;
}

}  // namespace moestro
