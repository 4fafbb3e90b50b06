// SPDX-License-Identifier: MIT
// What a user may say about devices beside the CPU, and what became of it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/device_info.h"
#include "decide/devices/device_tier.h"
#include "decide/devices/lane_planner.h"
#include "decide/devices/latency_model.h"

namespace moestro {

// For tests: what goes wrong on the device. Empty: nothing.
struct DeviceFaults {
  // Asked before each copy: there on the copier's thread, back on the engine's.
  std::function<bool()> fails_copy;
  std::function<bool()> fails_launch;  // asked before each launch
  bool spoils_results = false;         // every result is a tenth too large
};

struct DeviceOptions {
  // ggml's names with commas between them, or a backend's for the first device of that backend;
  // "cpu": none; "auto": the GPUs of one backend that are neither software nor remote, if there are
  // any. The dense part goes to the first, expert slots to all, the first ones first.
  std::string name = "auto";
  // For expert slots, the dense part and what computing takes: one size for every device, or each
  // one's own; empty: what is free, less a margin.
  std::vector<uint64_t> vram = {};
  PlaceMode place = PlaceMode::kAuto;
  Tiers tiers = Tiers::kInclusive;
  std::string latency_model = {};  // a file, whose costs are taken as they are; empty: measured
  // The dense part, keys and values stay in memory even if the first device has room for them.
  bool dense_on_cpu = false;
  // A device that was asked for by name and is lost in the middle does not end the run, as with
  // "auto": the CPU goes on. A server's choice.
  bool goes_on_if_lost = false;
  std::string cost_folder = {};  // where what was measured is kept for later; empty: nowhere

  // For tests: what goes wrong there, and on which device (empty: on all); "auto" takes software
  // devices if there is no GPU; memory's slots are pinned even if reads into them are slow.
  DeviceFaults faults = {};
  std::string faults_of = {};
  bool auto_takes_software = false;
  bool pins_slow_memory = false;
};

enum class CostSource : uint8_t { kMeasured, kKept, kFile };
// "measured", "kept" (from an earlier start), "file".
std::string_view NameOf(CostSource source);

// What a device computes beside the CPU, and what it takes there.
struct DevicePlan {
  DeviceInfo info;
  uint64_t bytes = 0;  // on the device, of everything
  uint64_t dense = 0;  // of these: dense weights; 0: the CPU computes the dense part
  uint64_t kv = 0;     // of these
  uint64_t slots = 0;
  LatencyModel latency = {};  // with this device alone
  CostSource costs = CostSource::kMeasured;
  double difference = 0.0;   // of the self-test, a share (mean squares)
  bool from_pinned = false;  // memory's slots are pinned, by the first device
};

}  // namespace moestro
