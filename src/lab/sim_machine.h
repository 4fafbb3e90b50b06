// SPDX-License-Identifier: MIT
// The machine of a replay: slots of a tier, predictor, and lanes of devices.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/flags.h"
#include "decide/ahead/predictors.h"
#include "decide/devices/device_tier.h"
#include "decide/devices/lane_planner.h"
#include "lab/sim_report.h"
#include "sim/machine.h"
#include "trace/trace.h"

namespace moestro {

// The number of experts that a tier holds, as users write it: "512" or "12.5%".

// A number of slots, or a share of all experts.
struct SlotCount {
  uint64_t slots = 0;
  double percent = 0.0;  // used when slots == 0

  uint64_t of(uint64_t experts) const {
    if (slots > 0) return std::min(slots, experts);
    return static_cast<uint64_t>(std::llround(percent / 100.0 * static_cast<double>(experts)));
  }
};

// "24,12.5%". kUsage, naming the wrong number.
Status ParseSlotCounts(std::string_view text, std::vector<SlotCount>& counts);

// The predictor for replays of `moestro sim`.

struct SimPredictor {
  std::string name = "none";
  std::string paths = {};                 // file of the predictor "paths"
  std::optional<uint32_t> prefetch = {};  // layers; 0: predictions inform the policy only
};

// --predictor, --paths and --prefetch. `predictor` must outlive the parsing.
void AddPredictorFlags(Flags sim, SimPredictor& predictor);

// Reads the paths if they are needed. kUsage: the file is not named; else errors of ReadPathsFor().
Result<PredictorChoice> ChoosePredictor(const SimPredictor& predictor, const TraceInfo& info);

// `moestro sim --machine`: a trace on a machine with devices.

struct SimLanes {
  std::string machine = {};           // file; empty: no lanes
  std::vector<PlaceMode> modes = {};  // empty: not given
  std::optional<Tiers> tiers = {};
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
