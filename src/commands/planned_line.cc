// SPDX-License-Identifier: MIT
#include "commands/planned_line.h"

#include <algorithm>

#include "base/format.h"
#include "engine/engine_options.h"
#include "learned/seen_caching.h"

namespace moestro {

namespace {

// Share of the experts that memory held; nullopt: too few tokens were decoded, or in a way that
// plans do not cover.
std::optional<double> ShareOfPlainRun(const RunReport& report) {
  constexpr uint64_t kFewestTokens = 48;  // fewer are dominated by the cold start
  const PhaseStats& decode = report.stats.decode;
  const MemoryPlan& memory = report.memory;
  const bool is_plain = memory.devices.empty() && memory.n_low_slots == 0 &&
                        report.probes.rows_per_step == 1 && decode.losses.missing == 0;
  if (!is_plain || decode.tokens < kFewestTokens || memory.n_experts == 0) return std::nullopt;
  return static_cast<double>(memory.n_slots) / static_cast<double>(memory.n_experts);
}

}  // namespace

std::optional<PlannedSpeed> FindPlanned(const std::string& folder, uint32_t threads,
                                        const Engine& engine, const RunReport& report) {
  const std::optional<double> share = ShareOfPlainRun(report);
  if (!share) return std::nullopt;
  return SpeedAt(KeptPlan(folder, engine.facts().id.fingerprint, ResolveThreads(threads)), *share);
}

void KeepCachingSeen(const std::string& folder, const Engine& engine, const RunReport& report) {
  // Beyond this share most misses are first reads, which depend on the cold start and not on
  // caching.
  constexpr double kMostShare = 0.6;
  const std::optional<double> share = ShareOfPlainRun(report);
  const PhaseStats& decode = report.stats.decode;
  if (!share || *share > kMostShare || decode.requests == 0) return;
  if (report.policy.name != PolicyChoice().name) return;
  const uint64_t missing = decode.absent() + decode.used_prefetches;
  KeepCaching(folder, engine.facts().id.fingerprint,
              {.share = *share,
               .missing = std::min(
                   static_cast<double>(missing) / static_cast<double>(decode.requests), 1.0)});
}

std::string PlannedText(const PlannedSpeed& planned, const RunReport& report) {
  const double came = report.stats.decode.tokens_per_second();
  const char* const where = came < planned.low    ? "less than planned"
                            : came > planned.high ? "more than planned"
                                                  : "as planned";
  return Format("planned  {:.1f} to {:.1f} tok/s in decode; {:.1f} came, {}\n", planned.low,
                planned.high, came, where);
}

void AddPlanned(Json& object, const PlannedSpeed& planned) {
  object.Set("planned_low_tps", planned.low).Set("planned_high_tps", planned.high);
}

}  // namespace moestro
