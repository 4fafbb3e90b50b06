// SPDX-License-Identifier: MIT
// The replays of `moestro sim`, as lines for people, as CSV and as JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lab/lanes_report.h"
#include "sim/sweep.h"
#include "sim/tune_sizes.h"

namespace moestro {

// Each text has a final newline. `machine`: set if the lines have lanes.
std::string DescribeLines(const std::vector<SweepLine>& lines,
                          const std::optional<LanesMachine>& machine);
std::string LinesAsCsv(const std::vector<SweepLine>& lines);
std::string LinesAsJson(const std::vector<SweepLine>& lines,
                        const std::optional<LanesMachine>& machine);

std::string DescribeTuning(const std::vector<TunedAtSize>& sizes);
std::string TuningAsJson(const std::vector<TunedAtSize>& sizes);

}  // namespace moestro
