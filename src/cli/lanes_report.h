// SPDX-License-Identifier: MIT
// What `moestro sim --machine` replayed, as lines for people and as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "decide/devices/lane_planner.h"
#include "sim/lanes_replay.h"

namespace moestro {

struct LanesLine {
  std::string machine;
  PlaceMode mode = PlaceMode::kAuto;
  uint32_t rows = 1;
  uint64_t slots = 0;
  std::vector<std::string> devices = {};  // their names
  uint64_t device_slots = 0;              // of each
  uint64_t experts = 0;                   // of the model
  LanesResult result = {};
};

// Each with a final newline.
std::string DescribeLanes(const std::vector<LanesLine>& lines);
std::string LanesAsJson(const std::vector<LanesLine>& lines);

}  // namespace moestro
