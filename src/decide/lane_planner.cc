// SPDX-License-Identifier: MIT
#include "decide/lane_planner.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "base/check.h"

namespace moestro {
namespace {

struct NamedMode {
  PlaceMode mode;
  std::string_view name;
};
constexpr std::array kModes = {
    NamedMode{PlaceMode::kAuto, "auto"}, NamedMode{PlaceMode::kGpuCentric, "gpu-centric"},
    NamedMode{PlaceMode::kCooperative, "cooperative"}, NamedMode{PlaceMode::kCpu, "cpu"}};

// A gain below this share of a layer's time is none: rounding decides nothing.
constexpr double kLeastShare = 1e-9;

bool is_better(double seconds, double than) { return seconds < than * (1.0 - kLeastShare); }

// Slots left for copies while places are chosen.
class Room {
 public:
  explicit Room(std::span<const uint32_t> room) : left_(room.begin(), room.end()) {}

  bool Take(const LaneJob& job) {
    if (!job.pool || *job.pool >= left_.size() || left_[*job.pool] == 0) return false;
    --left_[*job.pool];
    return true;
  }
  void GiveBack(const LaneJob& job) { ++left_[*job.pool]; }

 private:
  std::vector<uint32_t> left_;
};

bool is_device_able(const LaneJob& job) { return job.pool.has_value(); }

std::vector<Place> FixedPlaces(std::span<const LaneJob> jobs, PlaceMode mode,
                               std::span<const uint32_t> room) {
  Room left(room);
  std::vector<Place> places(jobs.size(), Place::kHost);
  if (mode == PlaceMode::kCpu) return places;
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (!is_device_able(jobs[i])) continue;
    if (jobs[i].on_device) {
      places[i] = Place::kDevice;
    } else if (mode == PlaceMode::kGpuCentric && left.Take(jobs[i])) {
      places[i] = Place::kCopied;
    }
  }
  return places;
}

double PriceOfSlots(std::span<const LaneJob> jobs, std::span<const Place> places) {
  double price = 0.0;
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (places[i] == Place::kCopied) price += jobs[i].slot_price;
  }
  return price;
}

double CostOf(std::span<const LaneJob> jobs, std::span<const Place> places,
              const LatencyModel& model) {
  return PriceLanes(jobs, places, model).seconds() + PriceOfSlots(jobs, places);
}

// Longest processing time first: each job, the longest first, to the side that is then done sooner.
std::vector<Place> LongestFirst(std::span<const LaneJob> jobs, const LatencyModel& model,
                                std::span<const uint32_t> room) {
  std::vector<size_t> order(jobs.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, std::greater(), [&](size_t i) {
    return model.host.Seconds(jobs[i].bytes, jobs[i].rows);
  });
  Room left(room);
  std::vector<Place> places(jobs.size(), Place::kHost);
  std::vector<LaneJob> so_far;
  std::vector<Place> so_far_places;
  for (const size_t i : order) {
    so_far.push_back(jobs[i]);
    so_far_places.push_back(Place::kHost);
    const Place there = jobs[i].on_device ? Place::kDevice : Place::kCopied;
    if (!is_device_able(jobs[i]) || (there == Place::kCopied && !left.Take(jobs[i]))) continue;
    const double host = CostOf(so_far, so_far_places, model);
    so_far_places.back() = there;
    if (is_better(CostOf(so_far, so_far_places, model), host)) {
      places[i] = there;
    } else {
      so_far_places.back() = Place::kHost;
      if (there == Place::kCopied) left.GiveBack(jobs[i]);
    }
  }
  return places;
}

// Moves one job at a time to the other side, always the one that gains most, as long as it gains.
void Improve(std::span<const LaneJob> jobs, const LatencyModel& model,
             std::span<const uint32_t> room, LanePlan& plan) {
  Room left(room);
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (plan.places[i] == Place::kCopied) CHECK(left.Take(jobs[i]));
  }
  // Every move makes the plan cheaper, so this ends; the limit bounds what deciding may cost.
  for (size_t moves = 0; moves < jobs.size(); ++moves) {
    size_t best = jobs.size();
    double least = plan.cost();
    for (size_t i = 0; i < jobs.size(); ++i) {
      const Place here = plan.places[i];
      const Place other = here != Place::kHost ? Place::kHost
                          : jobs[i].on_device  ? Place::kDevice
                                               : Place::kCopied;
      if (!is_device_able(jobs[i])) continue;
      if (other == Place::kCopied) {
        if (!left.Take(jobs[i])) continue;
        left.GiveBack(jobs[i]);
      }
      plan.places[i] = other;
      const double cost = CostOf(jobs, plan.places, model);
      plan.places[i] = here;
      if (!is_better(cost, least)) continue;
      best = i;
      least = cost;
    }
    if (best == jobs.size()) return;
    Place& moved = plan.places[best];
    if (moved == Place::kCopied) left.GiveBack(jobs[best]);
    moved = moved != Place::kHost  ? Place::kHost
            : jobs[best].on_device ? Place::kDevice
                                   : Place::kCopied;
    if (moved == Place::kCopied) CHECK(left.Take(jobs[best]));
    plan.times = PriceLanes(jobs, plan.places, model);
    plan.price = PriceOfSlots(jobs, plan.places);
  }
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

LaneTimes PriceLanes(std::span<const LaneJob> jobs, std::span<const Place> places,
                     const LatencyModel& model) {
  CHECK(jobs.size() == places.size());
  const bool uses_host = std::ranges::contains(places, Place::kHost);
  const bool uses_device = std::ranges::any_of(places, [](Place p) { return p != Place::kHost; });
  const double host_factor = uses_device ? model.host_beside : 1.0;
  const double copy_factor = uses_host ? model.copy_beside : 1.0;
  LaneTimes times;
  // The device: what it has.
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (places[i] != Place::kDevice) continue;
    if (times.device == 0.0) times.device = model.launch;
    times.device += model.device.Seconds(jobs[i].bytes, jobs[i].rows);
  }
  // Copies: first what is in memory, then what the disk brings; the device waits for the last.
  double copied = 0.0;  // seconds of computing them
  for (const bool in_memory : {true, false}) {
    for (size_t i = 0; i < jobs.size(); ++i) {
      if (places[i] != Place::kCopied || jobs[i].in_memory != in_memory) continue;
      if (!in_memory) {
        times.disk += model.disk.Seconds(jobs[i].bytes);
        times.copy = std::max(times.copy, times.disk);
      }
      times.copy += copy_factor * model.copy.Seconds(jobs[i].bytes);
      copied += model.device.Seconds(jobs[i].bytes, jobs[i].rows);
    }
  }
  if (copied > 0.0) times.device = std::max(times.device, times.copy) + model.launch + copied;
  // The CPU: what is in memory, then what the disk brings.
  for (const bool in_memory : {true, false}) {
    for (size_t i = 0; i < jobs.size(); ++i) {
      if (places[i] != Place::kHost || jobs[i].in_memory != in_memory) continue;
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
                   std::span<const uint32_t> room) {
  const auto priced = [&](std::vector<Place> places) {
    const LaneTimes times = PriceLanes(jobs, places, model);
    const double price = PriceOfSlots(jobs, places);
    return LanePlan{.places = std::move(places), .times = times, .price = price};
  };
  if (mode != PlaceMode::kAuto) return priced(FixedPlaces(jobs, mode, room));
  // Those that copy nothing come first: a later one must be better.
  LanePlan best = priced(FixedPlaces(jobs, PlaceMode::kCooperative, room));
  for (std::vector<Place> places :
       {FixedPlaces(jobs, PlaceMode::kCpu, room), LongestFirst(jobs, model, room),
        FixedPlaces(jobs, PlaceMode::kGpuCentric, room)}) {
    LanePlan other = priced(std::move(places));
    if (is_better(other.cost(), best.cost())) best = std::move(other);
  }
  Improve(jobs, model, room, best);
  return best;
}

}  // namespace moestro
