// SPDX-License-Identifier: MIT
// Costs of decoding one token at a time on a machine: measured (Engine::ProbeCosts()) or given by a
// user. The simulator's clock advances by them.
#pragma once

#include <cstdint>

namespace moestro {

struct MachineCosts {
  double compute = 0.0;       // seconds of a token with all experts resident
  double expert_share = 0.6;  // share of `compute` that its experts take
  // Extra cost of an expert at the first and the second use after it was read, as a multiple of its
  // usual cost: its rows are not in order yet, and are put in order then.
  double first_use = 0.0;
  double second_use = 0.0;
  double bandwidth = 0.0;     // bytes per second, of an expert's reads; 0: no clock
  double read_latency = 0.0;  // seconds more that an idle disk takes for the first of several reads
  // Seconds that a layer that lacks experts takes beyond their reading and computing: threads that
  // fall asleep, experts computed one by one.
  double layer_wait = 0.0;
  double compute_beside = 1.0;   // times as long while the disk reads
  double read_beside = 1.0;      // times as long while the processor computes
  uint32_t io_depth = 4;         // reads at a time
  uint32_t max_read = 1U << 20;  // bytes of one

  bool operator==(const MachineCosts&) const = default;

  // Whether all values could have been measured.
  bool is_sane() const {
    constexpr double kMost = 1e6;  // seconds, or times
    constexpr double kMostBandwidth = 1e15;
    constexpr uint32_t kMostReads = 4096;
    constexpr uint32_t kLeastRead = 4096;
    const auto between = [](double value, double least, double most) {
      return value >= least && value <= most;  // not for NaN
    };
    return between(compute, 0.0, kMost) && between(expert_share, 0.0, 1.0) &&
           between(first_use, 0.0, kMost) && between(second_use, 0.0, kMost) &&
           between(bandwidth, 0.0, kMostBandwidth) && between(read_latency, 0.0, kMost) &&
           between(layer_wait, 0.0, kMost) && between(compute_beside, 1.0, kMost) &&
           between(read_beside, 1.0, kMost) && io_depth >= 1 && io_depth <= kMostReads &&
           max_read >= kLeastRead;
  }
};

}  // namespace moestro
