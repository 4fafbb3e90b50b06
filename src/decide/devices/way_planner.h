// SPDX-License-Identifier: MIT
// Compares the ways in which a machine with a device can decode: the CPU alone, or the dense part
// on the device and the experts on the CPU, or shared by most used experts, or shared by whole
// layers. A device with dear waits, slow copies or little memory may be of no use. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "decide/devices/latency_model.h"
#include "decide/devices/whole_planner.h"

namespace moestro {

enum class DeviceWay : uint8_t {
  kCpu,    // the CPU computes everything
  kDense,  // the device has the dense part, the CPU computes all experts
  kHot,    // the device also computes the most used experts of every layer
  kWhole,  // the device also computes the last layers whole
};
inline constexpr size_t kDeviceWays = 4;

struct WayCase {
  WholeCase experts;  // slots: 0 where the device has none
  // Seconds of a token's dense part on the CPU, and where the dense part is with the device in use;
  // waits for routers are not part of them.
  double dense_alone = 0.0;
  double dense = 0.0;
  // The shares of all experts that memory holds without the device and beside the device.
  double in_memory_alone = 1.0;
  double in_memory = 1.0;
};

// Bytes of memory while a device is in use.
struct MemoryBeside {
  uint64_t experts = 0;
  // The device's dense part, keys and values, which come to memory if the CPU computes everything.
  uint64_t dense_there = 0;
  // Bytes that a GPU sharing the memory of the CPU takes of it; 0: the device has its own.
  uint64_t shared = 0;
};

// Bytes that memory has for experts if the CPU computes everything; 0: the dense part takes all.
uint64_t ExpertsAlone(const MemoryBeside& beside);

// Expected seconds of a decoded token in each way; infinity: the device is not set up for the way.
// If the rows are in memory (LatencyModel::border is 0), the dense part is not on the device.
struct WayPrices {
  std::array<double, kDeviceWays> seconds = {
      std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity(),
      std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};

  double Of(DeviceWay way) const { return seconds[static_cast<size_t>(way)]; }
  // The quickest way that uses the device.
  DeviceWay best_there() const;
  // Whether the CPU alone is expected to gain more than `least_gain` of the best way's time.
  bool leaves_device(double least_gain) const {
    return Of(DeviceWay::kCpu) < (1.0 - least_gain) * Of(best_there());
  }
};

// All memory holds and the device lacks is computed by the CPU; experts that neither has are read
// first, drawn evenly. REQUIRES: the model has a device.
WayPrices PriceWays(const WayCase& of, const LatencyModel& model);

// Seconds of a token's dense part, by costs of experts: a processor reads weights of either kind at
// the same speed.
double DenseSecondsOnCpu(uint64_t bytes, uint32_t n_layers, const LatencyModel& model);
double DenseSecondsOnDevice(uint64_t bytes, uint32_t n_layers, const LatencyModel& model);

// Compares the tokens that a device decodes with the promise of the CPU alone. A window of tokens
// counts by the median, so that stalls and compiled shaders do not. Pure.
class WayWatch {
 public:
  static constexpr size_t kTokens = 64;  // of a window
  // The first windows are for shaders and for experts that move to the device.
  static constexpr size_t kFirstWindows = 2;
  static constexpr double kMostSlower = 0.1;

  // Notes a token of one row. True, if the window that ends here was the last to be noted.
  bool Note(double seconds);
  // The median seconds of the last whole window; nullopt: no window has ended.
  std::optional<double> median() const { return median_; }
  // Whether the last whole window was slower than `promised` by kMostSlower.
  bool is_slower_than(double promised) const {
    return median_ && windows_ > kFirstWindows && *median_ > (1.0 + kMostSlower) * promised;
  }

 private:
  std::vector<double> window_;
  size_t windows_ = 0;
  std::optional<double> median_;
};

}  // namespace moestro
