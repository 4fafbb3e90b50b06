// SPDX-License-Identifier: MIT
// What computes on this machine, and how fast; for code that has no engine at hand.
//
// Thread rule: one thread at a time, and no engine in the same process.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/device_info.h"
#include "decide/devices/latency_model.h"

namespace moestro {

std::vector<DeviceInfo> ListDevices();
std::string_view KindName(DeviceKind kind);

struct ProfileRequest {
  uint32_t threads = 0;  // of the CPU; 0: physical cores
  // Whose experts are measured, and the disk that it lies on; empty: an expert as large models have
  // them (2048 wide, 768 hidden, Q4_K, random weights), and no disk.
  std::string model = {};
  // What is kept there of the device (learned/cost_cache.h) gives way; empty: nowhere.
  std::string cost_folder = {};
  bool pins_slow_memory = false;  // as DeviceOptions has it
};

struct DeviceProfile {
  LatencyModel latency;      // with this device alone
  double difference = 0.0;   // from the CPU's results, a share (mean squares)
  bool from_pinned = false;  // the copies
};

// Costs of an expert on the device and on the CPU; under two seconds. kDevice: it does not start,
// lacks the memory or does not compute such experts; what reading a model says.
Result<DeviceProfile> ProfileDevice(const DeviceInfo& info, const ProfileRequest& request);

}  // namespace moestro
