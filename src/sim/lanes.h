// SPDX-License-Identifier: MIT
// A machine with lanes for a replay (replay.h): the costs of the CPU, the devices and their links,
// the experts on the devices at the start, and the result for a trace's experts. The disk is part
// of the replay.
//
// Pure. Thread rule: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/ids.h"
#include "core/layer_plan.h"
#include "core/run_identity.h"
#include "decide/devices/device_tier.h"
#include "decide/devices/lane_planner.h"
#include "decide/devices/latency_model.h"
#include "trace/trace.h"

namespace moestro {

struct LaneMachine {
  LatencyModel model = {};   // without devices everything runs on the CPU
  Cost dense = {};           // the dense part of a layer
  uint64_t dense_bytes = 0;  // of one layer
  PlaceMode mode = PlaceMode::kAuto;
  Tiers tiers = Tiers::kInclusive;
  // [device] The number of experts of each copy that the device holds; devices that are not listed
  // hold none.
  std::vector<uint64_t> device_slots = {};
  // [device] True: a device whose experts stay the same (a remote host): they are the device's
  // share by SharesOf(), from the start, and nothing is copied. Empty: of no device.
  std::vector<bool> is_settled = {};
  // Experts that get device slots at the start, in this order while slots are free. They leave in
  // the reverse order, and before any expert that decode has used on the device.
  std::vector<ExpertKey> first = {};
  // Memory is also full at the start: with the next experts of `first`, then the others by layer,
  // then, in inclusive tiers, the experts on a device. With a settled device with the first of
  // `first` that no device has.
  bool fills_memory = false;
};

// Steps of one kind. Experts count once in each layer of a pass, however many rows they have.
struct LanePhase {
  uint64_t tokens = 0;
  uint64_t steps = 0;
  uint64_t experts = 0;
  // The places where experts were, the nearest first. An expert on its way to memory counts as in
  // memory.
  uint64_t in_device = 0;
  uint64_t in_memory = 0;
  uint64_t on_disk = 0;
  // The places where experts ran: on a device from a slot, on a device after a copy, on the CPU.
  uint64_t ran_there = 0;
  uint64_t copied = 0;
  uint64_t staged = 0;  // of the copied: experts read past memory's slots
  uint64_t on_host = 0;
  uint64_t promoted = 0;    // experts copied to a device for later
  uint64_t moved_back = 0;  // experts moved back to memory when others took their slots
  // Bytes of weights that went through each lane; for the disk also bytes read ahead.
  uint64_t device_bytes = 0;
  uint64_t copy_bytes = 0;
  uint64_t host_bytes = 0;
  uint64_t disk_bytes = 0;
  double seconds = 0.0;        // virtual seconds of all tokens
  double dense_seconds = 0.0;  // of `seconds`: the dense part
  LaneTimes lanes = {};        // when each lane had done its part, summed over layers
  // Each device's part of the numbers above.
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
  LanePhase prefill;  // steps of prompts alone
};

// All experts, sorted by requests in the first `tokens` tokens, the most requested first; of equals
// the earlier layer is first. For the order by learned popularity see decide/slots/popularity.h.
std::vector<ExpertKey> ByPopularity(const Trace& trace, size_t tokens);
// All experts by layer, the last layer first: whole layers on the device, as in programs that place
// layers and not experts.
std::vector<ExpertKey> ByLayer(const MoeShape& shape);

}  // namespace moestro
