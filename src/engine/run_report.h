// SPDX-License-Identifier: MIT
// Reports what an engine has done, and how close its speed is to what the machine allows.
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

// The least time that the hardware allows for the work of one phase. A phase takes at least the
// time of its disk reads, and at least the time of its computation with every expert in memory.
// Both bounds hold for every single token, because a token's experts are known only after the token
// before it. So the bound of a decode is the sum of its tokens' bounds. (of_sums() is reported too.
// It assumes that reads of a cold start could run beside the computation of later tokens.)
struct SpeedBound {
  double disk_seconds = 0.0;
  double compute_seconds = 0.0;   // 0: unknown
  double stepwise_seconds = 0.0;  // sum over tokens of the larger of the two; 0: not known by token
  double of_sums() const { return std::max(disk_seconds, compute_seconds); }
  double seconds() const { return std::max(of_sums(), stepwise_seconds); }
  // Tokens per second at the bound, and the bound as a percentage of `actual` seconds; 0 if no
  // bound is known.
  double tokens_per_second(uint64_t tokens) const;
  double percent(double actual) const;
};

// Best and least of several probes of one rate. Machines have neighbours, and a host gives twice as
// much in one second as in the next: the best probe counts.
struct ProbedRate {
  double best = 0.0;   // bytes per second; 0: not measured
  double least = 0.0;  // bytes per second of the slowest probe; 0: not measured
  void Add(double rate) {
    best = std::max(best, rate);
    least = least > 0.0 ? std::min(least, rate) : rate;
  }
};

// The least time of a decode's steps with any kernel, policy and prefetch. SpeedBound takes the
// engine's own fastest step and its own policy's misses, so slower kernels and worse policies raise
// that bound. Limit does not depend on them. (Limit is looser than a sum over tokens: both of its
// times are sums.)
struct Limit {
  uint64_t touched_bytes = 0;  // PhaseStats::touched_bytes
  uint64_t fewest_bytes = 0;   // from disk by Belady's rule, with the slots as they were at first
  // Measured by plain read loops on all threads, and by the bytes that the decode itself read in
  // its time.
  ProbedRate memory_bandwidth = {};
  ProbedRate disk_bandwidth = {};  // by probes, and by the decode itself

  double memory_seconds() const { return Seconds(touched_bytes, memory_bandwidth.best); }
  double disk_seconds() const { return Seconds(fewest_bytes, disk_bandwidth.best); }
  double seconds() const { return std::max(memory_seconds(), disk_seconds()); }
  // Tokens per second at the limit, and the limit as a percentage of `actual` seconds; 0 if the
  // limit is not known.
  double tokens_per_second(uint64_t tokens) const;
  double percent(double actual) const;

 private:
  static double Seconds(uint64_t bytes, double bandwidth) {
    return bandwidth > 0.0 ? static_cast<double>(bytes) / bandwidth : 0.0;
  }
};

// The time of a decode's steps that more threads make no faster: routing, plans, barriers and
// computations between products. The rest of a step is bound by memory.
struct SerialShare {
  double seconds = 0.0;  // of a step
  double bytes = 0.0;    // bytes that a step reads from memory
  uint32_t n_layer = 0;

  double layer_seconds() const { return seconds / n_layer; }
  // Share of the serial part in a step's time on a machine whose threads read at `bandwidth` bytes
  // per second, if the serial part takes as long there.
  double share(double bandwidth) const { return seconds / (seconds + bytes / bandwidth); }
};

// Speeds of the machine, measured in this process.
struct Probes {
  ProbedRate disk_bandwidth = {};
  std::optional<double> compute_seconds_per_token;  // nullopt: one step's experts do not fit
  uint64_t rows_per_step = 1;                       // tokens that are computed together
};

SpeedBound DecodeBound(const RunStats& stats, const Probes& probes);
// The bound by the disk alone. The time of a prefill with all experts resident is measured by a
// separate run.
SpeedBound PrefillBound(const RunStats& stats, const Probes& probes);

struct RunReport {
  RunStats stats;
  uint32_t n_layer = 0;
  std::vector<PredictionScore> predictions = {};  // by layer distance
  Probes probes;
  MemoryPlan memory;
  DeviceStats device = {};      // of memory.devices
  LaneRatios lane_ratios = {};  // see EngineLearned
  PolicyChoice policy;
  std::string kernels = {};  // see EngineFacts
  uint64_t recalled = 0;     // see EngineFacts
  uint32_t io_depth = 0;     // reads at a time
  uint64_t peak_rss = 0;     // bytes
  // Speeds of the machine with reads and computation at the same time; nullopt: not measured.
  std::optional<Probes> together = {};
  // The limit of decode; nullopt: not requested; an error: why no limit is known.
  std::optional<Result<Limit>> limit = {};
};

// Serial part of the decode; nullopt: the engine did not measure it, or a device computed, too.
std::optional<SerialShare> SerialShareOf(const RunReport& report);

// Reports what the engine has done since its statistics were reset, and the speeds of the machine.
// `sequences`: a step had one row of each. `probe_disk`: the disk is measured even if nothing was
// read. `before`: the result of an earlier probe of the disk.
Result<RunReport> MakeReport(Engine& engine, std::span<Sequence* const> sequences, bool probe_disk,
                             const ProbedRate& before = {});
Result<RunReport> MakeReport(Engine& engine, Sequence& sequence, bool probe_disk);

}  // namespace moestro
