// SPDX-License-Identifier: MIT
#include "sim/lanes_sweep.h"

namespace moestro {

Result<std::vector<LanesLine>> SweepLanes(const Trace& trace, const LanesSweep& sweep) {
  std::vector<LanesLine> lines;
  LanesOptions options = sweep.options;
  for (const uint32_t rows : sweep.rows) {
    options.step.rows = rows;
    for (const uint64_t on_device : sweep.device_slots) {
      options.device_slots.assign(sweep.devices, on_device);
      for (const uint64_t in_memory : sweep.slots) {
        options.slots = in_memory;
        for (const PlaceMode mode : sweep.modes) {
          options.mode = mode;
          TRY(const LanesResult result, ReplayLanes(trace, options));
          lines.push_back({.mode = mode,
                           .rows = rows,
                           .slots = in_memory,
                           .device_slots = on_device,
                           .result = result});
        }
      }
    }
  }
  return lines;
}

}  // namespace moestro
