// SPDX-License-Identifier: MIT
// Predicts the gain of a GPU for a model on a machine, before the model is fetched. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "core/machine.h"
#include "decide/devices/latency_model.h"
#include "native/plan/engine_plan.h"
#include "native/plan/fit.h"
#include "speed/planned_model.h"
#include "trace/trace.h"

namespace moestro {

struct DeviceToPrice {
  std::string name = {};
  uint64_t vram = 0;  // bytes that a run may use
  LatencyModel costs =
      {};                 // costs of this device alone; those of the CPU and the disk are not used
  double disk = 0.0;      // bytes per second in the short bursts of reads of a layer
  uint32_t io_depth = 4;  // reads at a time
  double resident = 0.0;  // seconds of a token with all experts in memory, by the CPU alone
  double experts = 0.0;   // seconds of `resident` that the experts take
  uint32_t count_from = 0;  // tokens of the trace before this one are not counted
};

struct DevicePrice {
  bool has_dense = false;  // the dense part, keys and values fit the device
  double share = 0.0;      // share of the experts that the device has
  RemoteGain gain = {};    // seconds of a token
};

// Prices a device by two replays of `routing`: with the device, whose slots hold the experts that
// the tokens before count_from used most, and on the CPU alone. Errors: Replay(). REQUIRES:
// needs.expert_bytes; one device in `costs`.
Result<DevicePrice> PriceDevice(const Trace& routing, const ModelNeeds& needs, const Fit& fit,
                                const FixedMemory& fixed, const DeviceToPrice& device);

}  // namespace moestro
