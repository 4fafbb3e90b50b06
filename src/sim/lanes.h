// SPDX-License-Identifier: MIT
// A machine with lanes, as a replay (replay.h) runs on one: what the CPU, the devices and the links
// to these cost, who is on the devices at the start, and what became of a trace's experts there.
// The disk behind them is the replay's.
//
// Pure. Thread rule: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/ids.h"
#include "core/layer_plan.h"
#include "core/model_id.h"
#include "decide/devices/device_tier.h"
#include "decide/devices/lane_planner.h"
#include "decide/devices/latency_model.h"
#include "trace/trace.h"

namespace moestro {

struct LaneMachine {
  LatencyModel model = {};   // without devices everything runs on the CPU
  Cost dense = {};           // what a layer computes beside its experts
  uint64_t dense_bytes = 0;  // of one layer
  PlaceMode mode = PlaceMode::kAuto;
  Tiers tiers = Tiers::kInclusive;
  // [device], experts that it holds of each copy; devices that are not listed hold none.
  std::vector<uint64_t> device_slots = {};
  // Who has a device slot at the start; the first ones, as far as there are slots. They leave in
  // the reverse order, and before any expert that decode has used there.
  std::vector<ExpertKey> first = {};
  // Memory is full at the start, too: with who comes next in `first`, then the others by layer,
  // then, in inclusive tiers, with who is on a device.
  bool fills_memory = false;
};

// Steps of one kind. Experts count once in each layer of a pass, however many rows they have.
struct LanePhase {
  uint64_t tokens = 0;
  uint64_t steps = 0;
  uint64_t experts = 0;
  // Where they were, the nearest place first; what is on its way to memory counts as there.
  uint64_t in_device = 0;
  uint64_t in_memory = 0;
  uint64_t on_disk = 0;
  // Where they ran: on a device from the start, there after a copy, on the CPU.
  uint64_t ran_there = 0;
  uint64_t copied = 0;
  uint64_t staged = 0;  // of the copied, read past memory's slots
  uint64_t on_host = 0;
  uint64_t promoted = 0;    // moved to a device for later
  uint64_t moved_back = 0;  // from there to memory, when others came
  // Bytes of weights that went through each lane; of the disk also what was read ahead.
  uint64_t device_bytes = 0;
  uint64_t copy_bytes = 0;
  uint64_t host_bytes = 0;
  uint64_t disk_bytes = 0;
  double seconds = 0.0;        // of all, virtual
  double dense_seconds = 0.0;  // of these, beside the experts
  LaneTimes lanes = {};        // when each had done its part, summed over layers
  // Of what is above, each device's part.
  struct Device {
    uint64_t ran_there = 0;
    uint64_t copied = 0;
    uint64_t staged = 0;
    uint64_t promoted = 0;
    uint64_t moved_back = 0;
    uint64_t bytes = 0;
    uint64_t copy_bytes = 0;
  };
  std::vector<Device> devices = {};

  double tokens_per_second() const {
    return seconds > 0.0 ? static_cast<double>(tokens) / seconds : 0.0;
  }
};

struct LanesResult {
  LanePhase decode;   // steps with a decode row
  LanePhase prefill;  // the others
};

// All experts, the most asked for in the first `tokens` first; of equals the earlier layer. By what
// was learned: decide/slots/popularity.h.
std::vector<ExpertKey> ByPopularity(const Trace& trace, size_t tokens);
// Layer by layer from the last one: whole layers on the device, as programs do that place layers
// and not experts.
std::vector<ExpertKey> ByLayer(const MoeShape& shape);

}  // namespace moestro
