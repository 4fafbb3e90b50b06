// SPDX-License-Identifier: MIT
// What `moestro sim --machine` replayed, as lines for people and as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/lanes_sweep.h"

namespace moestro {

struct LanesMachine {
  std::string name;
  std::vector<std::string> devices;  // their names
  uint64_t experts = 0;              // of the model
};

// Each with a final newline.
std::string DescribeLanes(const LanesMachine& machine, const std::vector<LanesLine>& lines);
std::string LanesAsJson(const LanesMachine& machine, const std::vector<LanesLine>& lines);

}  // namespace moestro
