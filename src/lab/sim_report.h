// SPDX-License-Identifier: MIT
// Reports of `moestro-lab sim`: replays, lanes, and hit rates as a drawing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "sim/replay.h"
#include "sim/tune.h"

namespace moestro {

// The replays of `moestro sim`, as lines for people, as CSV and as JSON.

// The report of `moestro sim --machine` about lanes; sim_report.h has the report about memory.

struct LanesMachine {
  std::string name;
  std::vector<std::string> devices;  // their names
  uint64_t experts = 0;              // of the model
  bool has_remotes = false;
};

// Lines, each with a newline.
std::string LanesText(const LanesMachine& machine, const SweepLine& line);
// Gain by remote hosts, if `with` is auto's line and `without` the CPU's of the same replay; else
// empty.
std::string RemoteGainText(const LanesMachine& machine, const SweepLine& with,
                           const SweepLine& without);
void AddLanes(Json& object, const LanesMachine& machine, const SweepLine& line);

// Each text has a final newline. `machine`: set if the lines have lanes.
std::string DescribeLines(const std::vector<SweepLine>& lines,
                          const std::optional<LanesMachine>& machine);
std::string LinesAsCsv(const std::vector<SweepLine>& lines);
std::string LinesAsJson(const std::vector<SweepLine>& lines,
                        const std::optional<LanesMachine>& machine);

std::string DescribeTuning(const std::vector<TunedAtSize>& sizes);
std::string TuningAsJson(const std::vector<TunedAtSize>& sizes);

// Hit rates of policies over the number of slots as a drawing.

// A complete SVG: one line per policy over the slots' share of all experts (logarithmic), a dashed
// line for Belady, axes and a legend. `title` may hold any text. REQUIRES: lines are not empty and
// their percentages are above 0.
std::string SweepPlot(const std::string& title, const std::vector<SweepLine>& lines);

}  // namespace moestro
