// SPDX-License-Identifier: MIT
#include "sim/sweep.h"

#include <utility>

namespace moestro {
namespace {

// Replays every size of memory and every way to place experts, with `device_slots` and the other
// options.
Status ReplayModes(const Trace& trace, const Sweep& sweep, uint64_t device_slots,
                   ReplayOptions options, std::vector<SweepLine>& lines) {
  const double experts = trace.info().shape().experts();
  const std::vector<PlaceMode> modes = options.lanes ? sweep.modes : std::vector{PlaceMode::kAuto};
  for (const uint64_t slots : sweep.slots) {
    options.slots = slots;
    for (const PlaceMode mode : modes) {
      if (options.lanes) options.lanes->mode = mode;
      TRY(ReplayResult result, Replay(trace, options));
      lines.push_back({.policy = options.policy.name,
                       .slots = slots,
                       .percent = 100.0 * static_cast<double>(slots) / experts,
                       .result = std::move(result),
                       .has_lanes = options.lanes.has_value(),
                       .mode = mode,
                       .rows = static_cast<uint32_t>(options.step.rows),
                       .device_slots = device_slots});
    }
  }
  return {};
}

}  // namespace

Result<std::vector<SweepLine>> ReplayAll(const Trace& trace, const Sweep& sweep) {
  std::vector<SweepLine> lines;
  ReplayOptions options = sweep.options;
  for (const PolicyChoice& policy : sweep.policies) {
    options.policy = policy;
    if (!options.lanes) {
      TRY_STATUS(ReplayModes(trace, sweep, 0, options, lines));
      continue;
    }
    for (const uint32_t rows : sweep.rows) {
      options.step.rows = rows;
      for (const uint64_t on_device : sweep.device_slots) {
        options.lanes->device_slots.assign(options.lanes->model.devices.size(), on_device);
        TRY_STATUS(ReplayModes(trace, sweep, on_device, options, lines));
      }
    }
  }
  return lines;
}

}  // namespace moestro
