// SPDX-License-Identifier: MIT
// The cost of running an expert on the CPU or on a device, and of copying it to a device. Costs are
// measured, not assumed (Twiddler's latency model; its published constants are for one machine).
// Pure values.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace moestro {

// seconds = base + bytes * (per_byte + per_row * (rows - 1)): one more row costs in proportion to
// the weights, so a fit also holds for experts of another size.
struct Cost {
  double base = 0.0;
  double per_byte = 0.0;
  double per_row = 0.0;
  double error = 0.0;  // of the fit: the median share by which a measurement was missed

  // The seconds for `bytes` of weights and `rows` rows. REQUIRES: rows >= 1.
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

// The fit with the least sum of squared relative errors; no part is negative. If samples differ in
// rows alone or in bytes alone, the other parts are 0. REQUIRES: samples, all with bytes, rows and
// seconds above 0.
Cost FitCost(std::span<const CostSample> samples);

// The costs of a device beside the CPU.
struct DeviceCosts {
  Cost compute = {};    // an expert on the device, as one of several in a launch
  Cost copy = {};       // memory to device
  double launch = 0.0;  // seconds of a launch: inputs to the device, results back
  // Seconds of a pair of a row and an expert whose row is in memory: the row goes there, the result
  // comes back.
  double pair = 0.0;
  // Seconds of the engine's thread in the calls that begin a launch and collect results that are
  // there. The CPU's team computes nothing meanwhile.
  double calls = 0.0;
  double begin = 0.0;        // of `calls`, in those that begin the launch
  double copy_beside = 1.0;  // times as long while the CPU computes
  bool is_queued = false;  // copies are the device's own, from pinned memory (devices/copy_ring.h)

  bool operator==(const DeviceCosts&) const = default;
};

// The largest factor beside other work. More is a stall of the machine and no cost.
inline constexpr double kMostBeside = 1e3;

struct LatencyModel {
  Cost host = {};            // an expert on the CPU's team, its weights in memory
  Cost disk = {};            // disk to memory
  double host_begin = 0.0;   // seconds of the CPU's share of a layer, however many experts
  double host_beside = 1.0;  // times as long while a device computes or copies run
  // Seconds that a layer takes longer whose rows leave the first device because other processors
  // compute some of the layer's experts: the rows come back, the sum of the results goes there. The
  // first device keeps the results of its own experts. 0: the rows are in memory anyway.
  double border = 0.0;
  double border_pair = 0.0;               // the same, for each pair of a row and an expert
  std::vector<DeviceCosts> devices = {};  // in the order in which they are used

  double BorderSeconds(uint64_t pairs) const {
    return border + border_pair * static_cast<double>(pairs);
  }
  // Whether rows lie on the device, which keeps the results of its experts.
  bool has_rows(uint32_t device) const { return device == 0 && border > 0.0; }
  // An expert on a device, as one of several in a launch.
  double OnDevice(uint32_t device, uint64_t bytes, uint32_t rows) const {
    const DeviceCosts& its = devices[device];
    return its.compute.Seconds(bytes, rows) + (has_rows(device) ? 0.0 : its.pair * rows);
  }
  // Calls of a launch beside which the CPU computes.
  double CallSeconds(uint32_t device) const {
    return has_rows(device) ? devices[device].begin : devices[device].calls;
  }
  bool operator==(const LatencyModel&) const = default;
};

// kInvalidRequest, naming the value: not finite, negative, or a factor below 1.
Status CheckLatency(const LatencyModel& model);

enum class Lane : uint8_t { kHost, kDisk, kDevice, kCopy };
// "host", "disk", "device", "copy".
const char* NameOf(Lane lane);

// For each lane of the machine: the measured time divided by the predicted time.
struct LaneRatios {
  struct Device {
    double compute = 1.0;
    double copy = 1.0;

    bool operator==(const Device&) const = default;
  };
  double host = 1.0;        // of experts
  double host_begin = 0.0;  // seconds, as in LatencyModel
  double disk = 1.0;
  std::vector<Device> devices = {};

  // Whether the CPU, the device or the copies to the device take another time than predicted, by
  // more than this factor.
  bool differs(size_t device, double factor) const {
    const auto is_off = [factor](double ratio) { return ratio > factor || ratio * factor < 1.0; };
    return is_off(host) || is_off(devices[device].compute) || is_off(devices[device].copy);
  }
  bool operator==(const LaneRatios&) const = default;
};

// Keeps each lane's median ratio of measured to predicted time over the last kWindow layers. One
// stalled layer does not change it. The CPU's share of a layer also has a time of its own that does
// not grow with the experts: if the window has small and large shares, a line goes through the
// medians of both.
class LatencyTracker {
 public:
  static constexpr size_t kWindow = 64;

  explicit LatencyTracker(size_t devices) : lanes_(kCommon + kOfDevice * devices) {}

  // Notes the time of a lane: the CPU, the disk, a device's computing or the copies to a device. A
  // prediction of 0 seconds is ignored. REQUIRES: seconds >= 0.
  void Observe(Lane lane, double predicted, double seconds, size_t device = 0);
  // Notes when a device's results were collected, in seconds since the layer's begin.
  struct Collected {
    double predicted = 0.0;   // by the costs before any refit
    double before = 0.0;      // when the CPU and earlier devices had finished; 0: none computed
    double done = 0.0;        // when the results were there
    double collecting = 0.0;  // of `done`, in the call that waits
  };
  // If collecting took no longer than `least`, a launch and its copies, behind another processor,
  // the device had ended before: its time is at most `done`, which counts only if that is less than
  // `ratio`, the one in use, has it.
  void ObserveDevice(const Collected& seen, double least, double ratio, size_t device);
  // The ratio is 1 until half a window has been observed.
  double Ratio(Lane lane, size_t device = 0) const;
  LaneRatios ratios() const;
  // `model` with every lane's costs times the lane's ratio. REQUIRES: the model has as many
  // devices.
  LatencyModel Refitted(const LatencyModel& model) const;

 private:
  static constexpr size_t kCommon = 2;    // lanes of the machine
  static constexpr size_t kOfDevice = 2;  // and of each device
  struct Seen {
    double predicted = 0.0;
    double seconds = 0.0;
  };
  struct History {
    std::array<Seen, kWindow> layers = {};
    size_t seen = 0;

    std::span<const Seen> last() const { return std::span(layers).first(std::min(seen, kWindow)); }
  };
  static size_t Index(Lane lane, size_t device);
  struct Line {
    double ratio = 1.0;
    double begin = 0.0;
  };
  Line HostLine() const;
  std::vector<History> lanes_;
};

}  // namespace moestro
