// SPDX-License-Identifier: MIT
// The report of `moestro sim --machine` about lanes; sim_report.h has the report about memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "sim/sweep.h"

namespace moestro {

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

}  // namespace moestro
