// SPDX-License-Identifier: MIT
// Replays a routing trace on a machine with devices: expert slots there, slots in memory behind
// them, the disk behind those. The engine's own DeviceTier decides who is where, who computes and
// who moves for later; PriceLanes() says what a layer takes. With the same trace, slots, policy and
// costs (--latency-model) the plans are the engine's.
//
// What it leaves out: layers do not overlap (nothing is copied or read for a layer before its
// router has spoken), and the head and what is outside the layers cost nothing. Policies hear of no
// predictions. All experts have one form. What moves for later takes its device's link while the
// layers leave it idle, and slows nothing else.
//
// Pure. Thread rule: none; calls on different traces or from different threads do not meet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/result.h"
#include "core/ids.h"
#include "core/layer_plan.h"
#include "decide/devices/device_tier.h"
#include "decide/devices/lane_planner.h"
#include "decide/devices/latency_model.h"
#include "decide/slots/policy.h"
#include "decide/slots/slot_table.h"
#include "sim/trace_steps.h"
#include "trace/trace.h"

namespace moestro {

struct LanesOptions {
  LatencyModel model = {};   // without devices everything runs on the CPU
  Cost dense = {};           // what a layer computes beside its experts
  uint64_t dense_bytes = 0;  // of one layer
  PlaceMode mode = PlaceMode::kAuto;
  Tiers tiers = Tiers::kInclusive;
  uint64_t slots = 0;                       // experts that memory holds
  std::vector<uint64_t> device_slots = {};  // [device], experts that it holds; others hold none
  PolicyChoice policy = {};                 // of all, each with a state of its own
  uint64_t expert_bytes = 0;                // 0: as the trace says
  // Who has a device slot at the start; the first ones, as far as there are slots. They leave in
  // the reverse order, and before any expert that decode has used there.
  std::vector<ExpertKey> first = {};
  // Memory is full at the start, too: with who comes next in `first`, then the others by layer,
  // then, in inclusive tiers, with who is on a device.
  bool fills_memory = false;
  StepSize step = {};
  size_t count_from = 0;              // tokens before this one warm up and are not counted
  SlotTable::Observer observer = {};  // sees every request for memory
  // Sees every layer's plan, after it has run.
  std::function<void(const LayerPlan&)> plan_observer = {};
};

// Steps of one kind. Experts count once in each layer of a step, however many rows they have.
struct LanePhase {
  uint64_t tokens = 0;
  uint64_t steps = 0;
  uint64_t experts = 0;
  // Where they were, the nearest place first.
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
  // Bytes of weights that went through each lane.
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

// kUsage: an unknown policy, fewer slots of memory than a layer of a token needs, slots of more
// devices than the model has, several rows for a trace that has such steps of its own.
Result<LanesResult> ReplayLanes(const Trace& trace, const LanesOptions& options);

// All experts, the most asked for in the first `tokens` first; of equals the earlier layer. By what
// was learned: decide/slots/popularity.h.
std::vector<ExpertKey> ByPopularity(const Trace& trace, size_t tokens);
// Layer by layer from the last one: whole layers on the device, as programs do that place layers
// and not experts.
std::vector<ExpertKey> ByLayer(const MoeShape& shape);

}  // namespace moestro
