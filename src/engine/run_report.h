// SPDX-License-Identifier: MIT
// What an engine has done and how close that came to what the machine allows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "decide/ahead/prefetch_planner.h"
#include "decide/devices/device_tier.h"
#include "decide/devices/latency_model.h"
#include "engine/engine_options.h"
#include "engine/run_stats.h"
#include "engine/sequence.h"

namespace moestro {

class Engine;

// What the hardware would allow for the work of one phase. It cannot be faster than its bytes come
// from the disk, nor than it computes with every expert at hand. Both hold for every token by
// itself, because what a token wants is known only when the one before it is done: the bound of a
// decode is the sum of its tokens' bounds. (The bound of the sums alone pretends that a cold
// start's reads could hide behind later tokens' computation; it is reported too.)
struct SpeedBound {
  double disk_seconds = 0.0;
  double compute_seconds = 0.0;   // 0: unknown
  double stepwise_seconds = 0.0;  // sum over tokens of the larger of the two; 0: not known by token
  double of_sums() const { return std::max(disk_seconds, compute_seconds); }
  double seconds() const { return std::max(of_sums(), stepwise_seconds); }
  // Of `tokens`, and of the bound that `actual` seconds reached; 0 when there is no bound.
  double tokens_per_second(uint64_t tokens) const;
  double percent(double actual) const;
};

// What no kernel, policy or prefetch could beat for a decode's steps. The bound above takes the
// engine's own fastest step and its own policy's misses, so slower kernels and worse policies make
// it easier; this one does not know them. (It is looser than a bound that adds up tokens: its two
// sides are sums.)
struct Limit {
  uint64_t touched_bytes = 0;  // PhaseStats::touched_bytes
  uint64_t fewest_bytes = 0;   // from disk by Belady's rule, with the slots as they were at first
  double memory_bandwidth = 0.0;  // bytes per second, by a plain read loop on all threads
  double disk_bandwidth = 0.0;    // the same, by the probe

  double memory_seconds() const { return Seconds(touched_bytes, memory_bandwidth); }
  double disk_seconds() const { return Seconds(fewest_bytes, disk_bandwidth); }
  double seconds() const { return std::max(memory_seconds(), disk_seconds()); }
  // As of a SpeedBound.
  double tokens_per_second(uint64_t tokens) const;
  double percent(double actual) const;

 private:
  static double Seconds(uint64_t bytes, double bandwidth) {
    return bandwidth > 0.0 ? static_cast<double>(bytes) / bandwidth : 0.0;
  }
};

// What the machine gives, measured in this process after the work.
struct Probes {
  double disk_bandwidth = 0.0;                      // bytes per second; 0: not measured
  std::optional<double> compute_seconds_per_token;  // nullopt: one step's experts do not fit
  uint64_t rows_per_step = 1;                       // tokens that are computed together
};

SpeedBound DecodeBound(const RunStats& stats, const Probes& probes);
// By the disk alone: what all-resident prefill takes is measured by a run of its own.
SpeedBound PrefillBound(const RunStats& stats, const Probes& probes);

struct RunReport {
  RunStats stats;
  std::vector<PredictionScore> predictions = {};  // by layer distance
  Probes probes;
  MemoryPlan memory;
  DeviceStats device = {};      // of memory.devices
  LaneRatios lane_ratios = {};  // see EngineLearned
  PolicyChoice policy;
  std::string kernels = {};  // see EngineFacts
  uint32_t io_depth = 0;     // reads at a time
  uint64_t peak_rss = 0;     // bytes
  // Of decode; nullopt: it was not asked for, an error: why it cannot be given.
  std::optional<Result<Limit>> limit = {};
};

// What the engine has done since its statistics were reset, and what the machine gives.
// `sequences`: one row of each was a step. `probe_disk`: also if nothing was read.
Result<RunReport> MakeReport(Engine& engine, std::span<Sequence* const> sequences, bool probe_disk);
Result<RunReport> MakeReport(Engine& engine, Sequence& sequence, bool probe_disk);

}  // namespace moestro
