// SPDX-License-Identifier: MIT
// What it takes to run an expert on the CPU or on a device, and to bring it there: costs that are
// measured, not assumed (Twiddler's latency model; its published constants are of one machine).
// Pure values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace moestro {

// seconds = base + bytes * (per_byte + per_row * (rows - 1)): a row more costs in proportion to the
// weights that it is multiplied with, so a fit holds for experts of another size, too.
struct Cost {
  double base = 0.0;
  double per_byte = 0.0;
  double per_row = 0.0;
  double error = 0.0;  // of the fit: the median share by which a measurement was missed

  // Of `bytes` of weights for `rows` rows. REQUIRES: rows >= 1.
  double Seconds(uint64_t bytes, uint32_t rows = 1) const {
    return base + static_cast<double>(bytes) * (per_byte + per_row * (rows - 1.0));
  }
  bool operator==(const Cost&) const = default;
};

struct CostSample {
  uint64_t bytes = 0;
  uint32_t rows = 1;
  double seconds = 0.0;
};

// The least sum of squared relative misses; no part is negative. Of samples that differ in nothing
// but rows or bytes the other parts are 0. REQUIRES: samples, all with bytes, rows and seconds
// above 0.
Cost FitCost(std::span<const CostSample> samples);

// What a device beside the CPU takes.
struct DeviceCosts {
  Cost compute = {};         // an expert there, among others of a launch
  Cost copy = {};            // memory to device
  double launch = 0.0;       // seconds of a launch: inputs there, results back
  double copy_beside = 1.0;  // times as long while the CPU computes

  bool operator==(const DeviceCosts&) const = default;
};

struct LatencyModel {
  Cost host = {};                         // an expert on the CPU's team, its weights in memory
  Cost disk = {};                         // disk to memory
  double host_beside = 1.0;               // times as long while a device computes or copies run
  std::vector<DeviceCosts> devices = {};  // in the order in which they are used

  bool operator==(const LatencyModel&) const = default;
};

// kInvalidRequest, naming the value: not finite, negative, or a factor below 1.
Status CheckLatency(const LatencyModel& model);

enum class Lane : uint8_t { kHost, kDisk, kDevice, kCopy };
// "host", "disk", "device", "copy".
const char* NameOf(Lane lane);

// How the lanes of the machine really do: how many times as long as predicted they take.
struct LaneRatios {
  struct Device {
    double compute = 1.0;
    double copy = 1.0;

    bool operator==(const Device&) const = default;
  };
  double host = 1.0;
  double disk = 1.0;
  std::vector<Device> devices = {};

  bool operator==(const LaneRatios&) const = default;
};

// A lane's median ratio of what a layer took to what was predicted, over the last kWindow layers:
// one stalled layer changes nothing.
class LatencyTracker {
 public:
  static constexpr size_t kWindow = 64;

  explicit LatencyTracker(size_t devices) : lanes_(kCommon + kOfDevice * devices) {}

  // Of CPU and disk, and of a device what it computes and the copies to it. REQUIRES: seconds >= 0.
  // What was predicted to take no time teaches nothing.
  void Observe(Lane lane, double predicted, double seconds, size_t device = 0);
  // 1 until half a window has been seen.
  double Ratio(Lane lane, size_t device = 0) const;
  LaneRatios ratios() const;
  // `model` with every lane's costs times its ratio. REQUIRES: it has as many devices.
  LatencyModel Refitted(const LatencyModel& model) const;

 private:
  static constexpr size_t kCommon = 2;    // lanes of the machine
  static constexpr size_t kOfDevice = 2;  // and of each device
  struct History {
    double ratios[kWindow] = {};
    size_t seen = 0;
  };
  static size_t Index(Lane lane, size_t device);
  std::vector<History> lanes_;
};

}  // namespace moestro
