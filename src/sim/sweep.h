// SPDX-License-Identifier: MIT
// Replays one trace with every combination of some choices.
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
  ReplayOptions options = {};  // shared by all replays; the members below replace its fields
  std::vector<PolicyChoice> policies = {};
  std::vector<uint64_t> slots = {};  // experts that memory holds
  // The members below replace fields of options.lanes; without lanes they are not used.
  std::vector<uint32_t> rows = {1};
  std::vector<uint64_t> device_slots = {0};  // experts that each device holds
  std::vector<PlaceMode> modes = {PlaceMode::kAuto};
};

struct SweepLine {
  std::string policy;
  uint64_t slots = 0;
  double percent = 0.0;  // of all experts
  ReplayResult result;
  bool has_lanes = false;  // the members below are for lanes
  PlaceMode mode = PlaceMode::kAuto;
  uint32_t rows = 1;
  uint64_t device_slots = 0;
};

// Replays every combination. Policies change slowest, then rows, device slots, slots and modes.
// Errors: Replay().
Result<std::vector<SweepLine>> ReplayAll(const Trace& trace, const Sweep& sweep);

}  // namespace moestro
