// SPDX-License-Identifier: MIT
// For each expert of a layer: the CPU or the device, and how its weights get there, so that the
// lanes of the machine end together. Lanes work side by side: the CPU's team, the device, the
// copies to it, the disk. (Twiddler decides expert by expert whether a copy beats the CPU; here all
// experts of a layer are weighed against the lanes' clocks. HOBBIT's two computing modes are two of
// the fixed ones.) Pure functions of values.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/layer_plan.h"
#include "decide/latency_model.h"

namespace moestro {

enum class PlaceMode : uint8_t {
  kAuto,         // the least predicted cost
  kGpuCentric,   // all on the device: what it lacks is copied there
  kCooperative,  // what the device has there, the rest on the CPU
  kCpu,          // all on the CPU
};

// kUsage for an unknown name; the message lists the known ones.
Result<PlaceMode> ParsePlaceMode(std::string_view name);
std::string_view NameOf(PlaceMode mode);

// What a layer asks for.
struct LaneJob {
  uint64_t bytes = 0;
  uint32_t rows = 1;
  bool in_memory = true;   // no disk read is needed
  bool on_device = false;  // in a slot there
  // Index into the planner's `room`; nullopt: the device cannot compute it.
  std::optional<uint32_t> pool = 0;
  // Seconds of later layers that a copy costs: what whoever gives up the slot would have saved.
  double slot_price = 0.0;
};

struct LanePlan {
  std::vector<Place> places;  // [job]
  LaneTimes times;            // as predicted
  double price = 0.0;         // of the slots that copies take

  double cost() const { return times.seconds() + price; }
};

// What the lanes take if the jobs run at `places`: the disk reads what the device waits for first,
// copies follow the reads, the device launches what it has and, once the last copy has landed, what
// was copied; the CPU computes what is in memory and then what arrives.
LaneTimes PriceLanes(std::span<const LaneJob> jobs, std::span<const Place> places,
                     const LatencyModel& model);

// room: [pool], the slots that copies may take in this layer; those that hold one of the jobs are
// not among them. What finds no room runs on the CPU. kAuto is never predicted to cost more than
// any of the other modes, later layers included; where slots have no price it is never slower.
// Between equals it copies less.
LanePlan PlanLanes(std::span<const LaneJob> jobs, const LatencyModel& model, PlaceMode mode,
                   std::span<const uint32_t> room);

}  // namespace moestro
