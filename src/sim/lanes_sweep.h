// SPDX-License-Identifier: MIT
// One trace on a machine with devices, with every combination of some choices.
//
// Pure. Thread rule: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "decide/devices/lane_planner.h"
#include "sim/lanes_replay.h"
#include "trace/trace.h"

namespace moestro {

struct LanesSweep {
  LanesOptions options = {};  // what all share; what is below replaces its own
  size_t devices = 0;         // of the machine
  std::vector<uint32_t> rows = {};
  std::vector<uint64_t> device_slots = {};  // experts that each device holds
  std::vector<uint64_t> slots = {};         // experts that memory holds
  std::vector<PlaceMode> modes = {};
};

struct LanesLine {
  PlaceMode mode = PlaceMode::kAuto;
  uint32_t rows = 1;
  uint64_t slots = 0;
  uint64_t device_slots = 0;
  LanesResult result = {};
};

// Every combination, the last choice of the struct changing fastest. Errors: ReplayLanes().
Result<std::vector<LanesLine>> SweepLanes(const Trace& trace, const LanesSweep& sweep);

}  // namespace moestro
