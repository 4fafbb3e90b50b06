// SPDX-License-Identifier: MIT
// A user's options for devices beside the CPU, and the plan of each device.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/machine.h"
#include "decide/devices/device_tier.h"
#include "decide/devices/lane_planner.h"
#include "decide/devices/latency_model.h"
#include "engine/remote_hosts.h"

namespace moestro {

// For tests: the faults of a device; empty: no fault.
struct DeviceFaults {
  // Called before each copy: on the copier's thread for a copy to the device, on the engine's
  // thread for a copy back.
  std::function<bool()> fails_copy;
  std::function<bool()> fails_launch;  // called before each launch
  bool spoils_results = false;         // every result is a tenth too large
};

// Other machines whose memory holds experts (docs/remote.md).
struct RemoteOptions {
  std::vector<RemoteHost> hosts = {};
  // This machine multiplies experts with its own kernels, so results differ from those without
  // hosts by rounding. Else both ends use ggml's, and bits are equal.
  bool is_inexact = false;
  bool takes_public = false;  // addresses outside private networks are allowed, too
  // Hosts compute what they have, though that may be slower than this machine's disk.
  bool is_always = false;
  std::string program = "/proc/self/exe";  // the program that connects to a host

  bool is_exact() const { return !hosts.empty() && !is_inexact; }
};

struct DeviceOptions {
  // ggml's device names with commas between them, or a backend's name for its first device. "cpu":
  // no device. "auto": the GPUs of one backend that are neither software nor remote, if there are
  // any. The dense part goes to the first device. Expert slots go to all devices, to the first
  // device first.
  std::string name = "auto";
  // Bytes for expert slots, the dense part and buffers: one size for all devices, or one size for
  // each device; empty: what is free, less a margin.
  std::vector<uint64_t> vram = {};
  RemoteOptions remote = {};
  PlaceMode place = PlaceMode::kAuto;
  Tiers tiers = Tiers::kInclusive;
  std::string latency_model = {};  // a file of costs; empty: costs are measured
  // The dense part, keys and values stay in memory even if the first device has room for them.
  bool dense_on_cpu = false;
  // If a device that was requested by name is lost, the CPU goes on, as with "auto". Servers set
  // this.
  bool goes_on_if_lost = false;
  std::string cost_folder = {};  // folder that keeps measured costs for later starts; empty: none

  // For tests: faults; the device that has them (empty: all); "auto" takes software devices if
  // there is no GPU; memory's slots are pinned even if reads into them are slow.
  DeviceFaults faults = {};
  std::string faults_of = {};
  bool auto_takes_software = false;
  bool pins_slow_memory = false;
};

enum class CostSource : uint8_t { kMeasured, kKept, kFile };
// "measured", "kept" (from an earlier start), "file".
std::string_view NameOf(CostSource source);

// The plan of a device beside the CPU: its bytes, slots and costs.
struct DevicePlan {
  DeviceInfo info;
  uint64_t bytes = 0;  // on the device, of everything
  uint64_t dense = 0;  // of `bytes`: dense weights; 0: the CPU computes the dense part
  uint64_t kv = 0;     // of `bytes`: keys and values
  uint64_t slots = 0;
  LatencyModel latency = {};  // costs with this device alone
  CostSource costs = CostSource::kMeasured;
  double difference = 0.0;   // of the self-test, a share (mean squares)
  bool from_pinned = false;  // memory's slots are pinned, by the first device
};

}  // namespace moestro
