// SPDX-License-Identifier: MIT
// What a user may say about a device beside the CPU, and what became of it.
#pragma once

#include <cstdint>
#include <string>

#include "core/device_info.h"
#include "decide/device_tier.h"
#include "decide/lane_planner.h"
#include "decide/latency_model.h"
#include "forward/experts/device_experts.h"

namespace moestro {

struct DeviceOptions {
  // ggml's name for a device, or its backend's for the first of that backend; "cpu": none; "auto":
  // the first GPU that is neither software nor remote, if there is one.
  std::string name = "auto";
  uint64_t vram_bytes = 0;  // for expert slots and what computing them takes; 0: what is free, less
                            // a margin
  PlaceMode place = PlaceMode::kAuto;
  Tiers tiers = Tiers::kInclusive;
  std::string latency_model = {};  // a file, whose costs are taken as they are; empty: measured

  // For tests: what goes wrong there.
  DeviceFaults faults = {};
};

// Where experts can be computed beside the CPU.
struct DevicePlan {
  DeviceInfo info;
  uint64_t bytes = 0;  // on the device, of slots and of what launches take
  uint64_t slots = 0;
  LatencyModel latency = {};
  double difference = 0.0;  // of the self-test, a share (mean squares)
};

}  // namespace moestro
