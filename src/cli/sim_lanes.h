// SPDX-License-Identifier: MIT
// `moestro sim --machine`: a trace on a machine with devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/flags.h"
#include "cli/slot_count.h"
#include "decide/devices/device_tier.h"
#include "decide/devices/lane_planner.h"
#include "decide/slots/policy.h"
#include "trace/trace.h"

namespace moestro {

struct SimLanes {
  std::string machine = {};  // file; empty: no lanes
  std::vector<PlaceMode> modes = {PlaceMode::kAuto};
  Tiers tiers = Tiers::kInclusive;
  std::vector<SlotCount> vram = {};  // empty: not given
  std::vector<uint32_t> rows = {1};
  uint64_t dense_bytes = 0;
  std::string first = "popular";
  bool preload = false;
};

// Flags that are not of the lanes alone.
struct SimShared {
  std::vector<SlotCount> slots = {};
  PolicyChoice policy = {};
  uint64_t expert_bytes = 0;
  std::string paths = {};  // file of what 'moestro profile' learned; empty: none
  size_t warm_up = 0;      // tokens that are not counted
  bool json = false;
};

// --machine and what needs it. `lanes` must outlive the parsing.
void AddLaneFlags(Flags sim, SimLanes& lanes);

// Every mode with every size and number of rows, as lines for people or as JSON. kUsage, and what
// reading the machine's file and the paths says.
Result<std::string> ReplayOnLanes(const SimLanes& lanes, const Trace& trace,
                                  const SimShared& shared);

}  // namespace moestro
