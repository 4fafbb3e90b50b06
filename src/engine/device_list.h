// SPDX-License-Identifier: MIT
// What computes on this machine, and how fast; for whoever has no model at hand.
//
// Thread rule: one thread at a time, and no engine in the same process.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/device_info.h"
#include "decide/latency_model.h"

namespace moestro {

std::vector<DeviceInfo> ListDevices();
std::string_view KindName(DeviceKind kind);

struct DeviceProfile {
  LatencyModel latency;     // without a disk
  double difference = 0.0;  // from the CPU's results, a share (mean squares)
};

// Costs of an expert as large models have them (2048 wide, 768 hidden, Q4_K, random weights) on the
// device and on `threads` (0: physical cores) of the CPU; under two seconds. kDevice: it does not
// start, lacks the memory or does not compute such experts.
Result<DeviceProfile> ProfileDevice(const DeviceInfo& info, uint32_t threads);

}  // namespace moestro
