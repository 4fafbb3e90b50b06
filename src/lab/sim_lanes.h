// SPDX-License-Identifier: MIT
// `moestro sim --machine`: a trace on a machine with devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/flags.h"
#include "decide/devices/device_tier.h"
#include "decide/devices/lane_planner.h"
#include "lab/lanes_report.h"
#include "lab/slot_count.h"
#include "sim/lanes.h"
#include "trace/trace.h"

namespace moestro {

struct SimLanes {
  std::string machine = {};           // file; empty: no lanes
  std::vector<PlaceMode> modes = {};  // empty: not given
  Tiers tiers = Tiers::kInclusive;
  std::vector<SlotCount> vram = {};  // empty: not given
  std::vector<uint32_t> rows = {1};
  uint64_t dense_bytes = 0;
  std::string first = "popular";
  bool preload = false;
};

// Adds --machine and the flags that need it. `lanes` must outlive the parsing.
void AddLaneFlags(Flags sim, SimLanes& lanes);

struct SimMachine {
  LaneMachine lanes = {};
  std::vector<PlaceMode> modes = {};        // as given, else auto, and cpu beside remote hosts
  std::vector<uint64_t> device_slots = {};  // sizes to replay: experts that each device holds
  LanesMachine names = {};
};

// Other flags that lanes use.
struct SimShared {
  std::string paths = {};     // file of 'moestro profile'; empty: none
  size_t warm_up = 0;         // tokens that are not counted
  uint64_t bandwidth = 0;     // of the disk, in place of the file's value; 0: not given
  uint64_t expert_bytes = 0;  // 0: not given
};

// Reads the machine's file, and chooses the experts on its devices at the start. kUsage; errors of
// reading the machine's file and the paths.
Result<SimMachine> ReadMachine(const SimLanes& lanes, const Trace& trace, const SimShared& shared);

}  // namespace moestro
