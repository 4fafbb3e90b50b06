// SPDX-License-Identifier: MIT
// For each expert of a layer: the CPU or one of the devices, and how its weights get there, so that
// the lanes of the machine end together. Lanes work side by side: the CPU's team, each device, the
// copies to each, the disk. (Twiddler decides expert by expert whether a copy beats the CPU; here
// all experts of a layer are weighed against the lanes' clocks. HOBBIT's two computing modes are
// two of the fixed ones.) Pure functions of values.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/layer_plan.h"
#include "decide/devices/latency_model.h"

namespace moestro {

enum class PlaceMode : uint8_t {
  kAuto,         // the least predicted cost
  kGpuCentric,   // all on the devices: what they lack is copied to the one that is done first then
  kCooperative,  // what a device has there, the rest on the CPU
  kCpu,          // all on the CPU
};

// kUsage for an unknown name; the message lists the known ones.
Result<PlaceMode> ParsePlaceMode(std::string_view name);
std::string_view NameOf(PlaceMode mode);

// What a layer asks for.
struct LaneJob {
  uint64_t bytes = 0;
  uint32_t rows = 1;
  bool in_memory = true;  // no disk read is needed
  // The device that has it in a slot: only that one and the CPU may compute it then.
  std::optional<uint32_t> on_device = {};
  uint32_t pool = 0;  // index into a device's `room`
  // [device] Seconds of later layers that a copy there costs: what the expert that gives up the
  // slot would have saved. Empty: slots have no price.
  std::vector<double> slot_prices = {};
};

// Where a job runs.
struct Site {
  Place place = Place::kHost;
  uint32_t device = 0;  // which one, unless place is kHost

  bool operator==(const Site&) const = default;
};

struct LanePlan {
  std::vector<Site> sites = {};  // [job]
  LaneTimes times = {};          // as predicted
  double price = 0.0;            // of the slots that copies take

  double cost() const { return times.seconds() + price; }
};

// What the lanes take if the jobs run at `sites`: the disk reads what the devices wait for first,
// the first device's before the next one's; copies follow the reads; a device launches what it has
// and, once its last copy has landed, what was copied; the CPU computes what is in memory and then
// what arrives. REQUIRES: the model has every device of `sites`.
LaneTimes PriceLanes(std::span<const LaneJob> jobs, std::span<const Site> sites,
                     const LatencyModel& model);

// room: [device][pool], the slots that copies may take in this layer; those that hold one of the
// jobs are not among them, and a device that cannot compute a pool's experts has none. What finds
// no room runs on the CPU. kAuto is never predicted to cost more than any of the other modes, later
// layers included; where slots have no price it is never slower. Between equals it copies less, and
// to the first of the devices.
LanePlan PlanLanes(std::span<const LaneJob> jobs, const LatencyModel& model, PlaceMode mode,
                   std::span<const std::vector<uint32_t>> room);

}  // namespace moestro
