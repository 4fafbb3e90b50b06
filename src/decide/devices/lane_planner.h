// SPDX-License-Identifier: MIT
// Chooses for each expert of a layer the CPU or one of the devices, and how the weights get there,
// so that the lanes of the machine end together. The lanes work side by side: the CPU's team, each
// device, the copies to each device, the disk. (Twiddler decides expert by expert whether a copy
// beats the CPU; here all experts of a layer are weighed against the lanes' clocks. HOBBIT's two
// computing modes are two of the fixed modes.) Pure functions of values.
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
  kAuto,  // the least predicted cost
  // All on the devices: a missing expert is copied to the device that then ends first.
  kGpuCentric,
  kCooperative,  // experts that a device has run on that device, the rest on the CPU
  kCpu,          // all on the CPU
};

// kUsage for an unknown name; the message lists the known ones.
Result<PlaceMode> ParsePlaceMode(std::string_view name);
std::string_view NameOf(PlaceMode mode);

// An expert that a layer needs.
struct LaneJob {
  uint64_t bytes = 0;
  uint32_t rows = 1;
  bool in_memory = true;  // no disk read is needed
  // The device that has the expert in a slot. Only this device and the CPU may then compute it.
  std::optional<uint32_t> on_device = {};
  uint32_t pool = 0;  // index into a device's `room`
  // [device] The seconds that a copy to the device costs later layers: the expert that gives up its
  // slot would have saved them. Empty: slots have no price.
  std::vector<double> slot_prices = {};
};

// Processor that runs a job, and the place of its weights.
struct Site {
  Place place = Place::kHost;
  uint32_t device = 0;  // unless place is kHost

  bool operator==(const Site&) const = default;
};

struct LanePlan {
  std::vector<Site> sites = {};  // [job]
  LaneTimes times = {};          // as predicted
  double price = 0.0;            // price of the slots that copies take

  double cost() const { return times.seconds() + price; }
};

// The times of the lanes if the jobs run at `sites`. The disk first reads the experts that devices
// wait for, those of the first device before those of the next. Copies follow the reads. A device
// launches the experts that it has, and the copied experts once its last copy has landed. The CPU
// computes the experts in memory and then the experts that arrive. If another processor than the
// first device has a job, the layer has a border. REQUIRES: the model has every device of `sites`.
LaneTimes PriceLanes(std::span<const LaneJob> jobs, std::span<const Site> sites,
                     const LatencyModel& model);

// room: [device][pool], the slots that copies may take in this layer. Slots that hold one of the
// jobs are not counted. A device that cannot compute a pool's experts has no slots for this pool.
// An expert that finds no slot runs on the CPU. The predicted cost of kAuto, later layers included,
// is never above that of another mode. Where slots have no price kAuto is never slower. Between
// equal plans it takes the one with fewer copies, and then copies to the first device.
LanePlan PlanLanes(std::span<const LaneJob> jobs, const LatencyModel& model, PlaceMode mode,
                   std::span<const std::vector<uint32_t>> room);

}  // namespace moestro
