// SPDX-License-Identifier: MIT
// What a user may say about a device beside the CPU, and what became of it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

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
  uint64_t vram_bytes = 0;  // for expert slots, the dense part and what computing takes; 0: what is
                            // free, less a margin
  PlaceMode place = PlaceMode::kAuto;
  Tiers tiers = Tiers::kInclusive;
  std::string latency_model = {};  // a file, whose costs are taken as they are; empty: measured
  // The dense part, keys and values stay in memory even if the device has room for them.
  bool dense_on_cpu = false;
  std::string cost_folder = {};  // where what was measured is kept for later; empty: nowhere

  // For tests: what goes wrong there; "auto" takes a software device if there is no GPU; memory's
  // slots are pinned even if reads into them are slow.
  DeviceFaults faults = {};
  bool auto_takes_software = false;
  bool pins_slow_memory = false;
};

enum class CostSource : uint8_t { kMeasured, kKept, kFile };
// "measured", "kept" (from an earlier start), "file".
std::string_view NameOf(CostSource source);

// What is computed beside the CPU, and what it takes there.
struct DevicePlan {
  DeviceInfo info;
  uint64_t bytes = 0;  // on the device, of everything
  uint64_t dense = 0;  // of these: dense weights; 0: the CPU computes the dense part
  uint64_t kv = 0;     // of these
  uint64_t slots = 0;
  LatencyModel latency = {};
  CostSource costs = CostSource::kMeasured;
  double difference = 0.0;   // of the self-test, a share (mean squares)
  bool from_pinned = false;  // memory's slots are pinned: copies need no detour
};

}  // namespace moestro
