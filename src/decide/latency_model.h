// SPDX-License-Identifier: MIT
// What it takes to run an expert on the CPU or on a device, and to bring it there: costs that are
// measured, not assumed (Twiddler's latency model; its published constants are of one machine).
// Pure values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

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

struct LatencyModel {
  Cost host;                 // an expert on the CPU's team, its weights in memory
  Cost device;               // an expert on the device, among others of a launch
  Cost copy;                 // memory to device
  Cost disk;                 // disk to memory
  double launch = 0.0;       // seconds of a launch: inputs there, results back
  double host_beside = 1.0;  // times as long while the device computes or copies run
  double copy_beside = 1.0;  // times as long while the CPU computes

  bool operator==(const LatencyModel&) const = default;
};

// kInvalidRequest, naming the value: not finite, negative, or a factor below 1.
Status CheckLatency(const LatencyModel& model);

// How the lanes of the machine really do, against what was predicted of them.
enum class Lane : uint8_t { kHost, kDevice, kCopy, kDisk };
inline constexpr size_t kLanes = 4;
// "host", "device", "copy", "disk".
const char* NameOf(Lane lane);

// A lane's median ratio of what a layer took to what was predicted, over the last kWindow layers:
// one stalled layer changes nothing.
class LatencyTracker {
 public:
  static constexpr size_t kWindow = 64;

  // REQUIRES: seconds >= 0. What was predicted to take no time teaches nothing.
  void Observe(Lane lane, double predicted, double seconds);
  size_t observed(Lane lane) const { return lanes_[static_cast<size_t>(lane)].seen; }
  // 1 until half a window has been seen.
  double Ratio(Lane lane) const;
  std::array<double, kLanes> ratios() const;  // by lane
  // `model` with every lane's costs times its ratio.
  LatencyModel Refitted(const LatencyModel& model) const;

 private:
  struct History {
    double ratios[kWindow] = {};
    size_t seen = 0;
  };
  History lanes_[kLanes];
};

}  // namespace moestro
