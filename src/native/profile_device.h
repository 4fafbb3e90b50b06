// SPDX-License-Identifier: MIT
// Lists the devices of this machine and measures their speed, for code that has no engine.
//
// Thread rule: one thread at a time, and no engine in the same process.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/machine.h"
#include "decide/devices/latency_model.h"

namespace moestro {

std::vector<DeviceInfo> ListDevices();
std::string_view KindName(DeviceKind kind);

struct ProfileRequest {
  uint32_t threads = 0;  // threads of the CPU; 0: physical cores
  // The model whose experts are measured, and the disk that holds its file. Empty: an expert like
  // those of large models (2048 wide, 768 hidden, Q4_K, random weights), and no disk.
  std::string model = {};
  // The folder of kept costs (learned/cost_cache.h). The new costs of the device replace the old
  // ones. Empty: costs are not kept.
  std::string cost_folder = {};
  bool pins_slow_memory = false;  // as in DeviceOptions
};

struct DeviceProfile {
  LatencyModel latency;      // with this device alone
  double difference = 0.0;   // distance from the CPU's results, as a share (mean squares)
  bool from_pinned = false;  // copies are from pinned memory
};

// Measures the costs of an expert on the device and on the CPU, in less than two seconds. kDevice:
// the device does not start, has too little memory or does not compute such experts; errors of
// reading a model.
Result<DeviceProfile> ProfileDevice(const DeviceInfo& info, const ProfileRequest& request);

}  // namespace moestro
