// SPDX-License-Identifier: MIT
// Devices that compute beside the CPU, as plain values.
#pragma once

#include <cstdint>
#include <string>

namespace moestro {

enum class DeviceKind : uint8_t {
  kCpu,
  kDiscrete,    // a GPU with memory of its own
  kIntegrated,  // a GPU that shares the CPU's memory
  kSoftware,    // the CPU in a GPU's clothes
  kRemote,      // another machine
};

struct DeviceInfo {
  std::string name = {};         // ggml's, "Vulkan0"
  std::string description = {};  // "NVIDIA GeForce RTX 4090"
  std::string backend = {};      // ggml's, "Vulkan"
  DeviceKind kind = DeviceKind::kDiscrete;
  uint64_t memory_total = 0;  // bytes
  uint64_t memory_free = 0;
};

}  // namespace moestro
