// SPDX-License-Identifier: MIT
// One trace, replayed with every combination of some choices.
//
// Pure. Thread rule: none.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "decide/devices/lane_planner.h"
#include "decide/slots/policy.h"
#include "sim/replay.h"
#include "trace/trace.h"

namespace moestro {

struct Sweep {
  ReplayOptions options = {};  // what all share; what is below replaces its own
  std::vector<PolicyChoice> policies = {};
  std::vector<uint64_t> slots = {};  // experts that memory holds
  // Of options.lanes, and not looked at without lanes.
  std::vector<uint32_t> rows = {1};
  std::vector<uint64_t> device_slots = {0};  // experts that each device holds
  std::vector<PlaceMode> modes = {PlaceMode::kAuto};
};

struct SweepLine {
  std::string policy;
  uint64_t slots = 0;
  double percent = 0.0;  // of all experts
  ReplayResult result;
  bool has_lanes = false;  // the rest is of these
  PlaceMode mode = PlaceMode::kAuto;
  uint32_t rows = 1;
  uint64_t device_slots = 0;
};

// Every combination: policies change slowest, then rows, device slots, slots and modes. Errors:
// Replay().
Result<std::vector<SweepLine>> ReplayAll(const Trace& trace, const Sweep& sweep);

}  // namespace moestro
