// SPDX-License-Identifier: MIT
#include "engine/run_report.h"

#include <algorithm>
#include <span>

#include "base/system_limits.h"
#include "engine/engine.h"

namespace moestro {

namespace {

double Rate(uint64_t tokens, double seconds) {
  return seconds > 0.0 ? static_cast<double>(tokens) / seconds : 0.0;
}

double Percent(double least, double actual) { return actual > 0.0 ? 100.0 * least / actual : 0.0; }

}  // namespace

double SpeedBound::tokens_per_second(uint64_t tokens) const { return Rate(tokens, seconds()); }
double SpeedBound::percent(double actual) const { return Percent(seconds(), actual); }
double Limit::tokens_per_second(uint64_t tokens) const { return Rate(tokens, seconds()); }
double Limit::percent(double actual) const { return Percent(seconds(), actual); }

Result<RunReport> MakeReport(Engine& engine, Sequence& sequence, bool probe_disk) {
  Sequence* const only = &sequence;
  return MakeReport(engine, std::span(&only, 1), probe_disk);
}

Result<RunReport> MakeReport(Engine& engine, std::span<Sequence* const> sequences, bool probe_disk,
                             const ProbedRate& before) {
  const RunStats& stats = engine.stats();
  const EngineFacts& facts = engine.facts();
  const EngineLearned learned = engine.learned();
  RunReport report{.stats = stats,
                   .n_layer = facts.n_layer,
                   .predictions = {learned.predictions.begin(), learned.predictions.end()},
                   .probes = {},
                   .memory = facts.memory,
                   .device = learned.device,
                   .lane_ratios = learned.lane_ratios,
                   .policy = facts.policy,
                   .kernels = facts.kernels,
                   .recalled = facts.recalled,
                   .io_depth = facts.io_depth};
  report.probes.rows_per_step = std::max<uint64_t>(sequences.size(), 1);
  TRY(const std::optional<double> step, engine.ProbeComputeSeconds(sequences));
  if (step) {
    report.probes.compute_seconds_per_token =
        *step / static_cast<double>(report.probes.rows_per_step);
  }
  if (probe_disk || stats.prefill.bytes_read + stats.decode.bytes_read > 0) {
    report.probes.disk_bandwidth = before;
    TRY(const double rate, engine.ProbeDiskBandwidth());
    report.probes.disk_bandwidth.Add(rate);
  }
  report.peak_rss = PeakResidentMemory();
  return report;
}

std::optional<SerialShare> SerialShareOf(const RunReport& report) {
  const PhaseStats& decode = report.stats.decode;
  if (decode.serial_steps == 0 || report.n_layer == 0 || !report.memory.devices.empty()) return {};
  const uint64_t rows = std::max<uint64_t>(report.probes.rows_per_step, 1);
  const double steps = static_cast<double>(decode.tokens) / static_cast<double>(rows);
  if (steps <= 0.0) return {};
  return SerialShare{.seconds = decode.serial_seconds / static_cast<double>(decode.serial_steps),
                     .bytes = static_cast<double>(decode.touched_bytes) / steps,
                     .n_layer = report.n_layer};
}

SpeedBound DecodeBound(const RunStats& stats, const Probes& probes) {
  const double compute = probes.compute_seconds_per_token.value_or(0.0);
  SpeedBound bound;
  bound.compute_seconds = compute * static_cast<double>(stats.decode.tokens);
  const double disk = probes.disk_bandwidth.best;
  if (disk <= 0.0) return bound;
  bound.disk_seconds = static_cast<double>(stats.decode.needed_bytes) / disk;
  bound.stepwise_seconds =
      stats.decode_bytes.SumOfAtLeast(compute * static_cast<double>(probes.rows_per_step) * disk) /
      disk;
  return bound;
}

SpeedBound PrefillBound(const RunStats& stats, const Probes& probes) {
  const double disk = probes.disk_bandwidth.best;
  if (disk <= 0.0) return {};
  return {.disk_seconds = static_cast<double>(stats.prefill.bytes_read) / disk};
}

}  // namespace moestro
