// SPDX-License-Identifier: MIT
#include "commands/recording.h"

#include <utility>
#include <vector>

#include "base/number.h"
#include "base/text.h"
#include "native/native_engine.h"
#include "trace/trace_file.h"

namespace moestro {
namespace {

// A trace with the costs in its header.
Result<Trace> WithCosts(const Trace& trace, const MachineCosts& costs) {
  TraceInfo info = trace.info();
  info.costs = costs;
  TRY(Trace with, Trace::Create(std::move(info)));
  for (size_t t = 0; t < trace.tokens(); ++t) TRY_STATUS(with.Add(trace.token(t)));
  return with;
}

double Ratio(const Forecast& forecast, const PhaseStats& measured) {
  const double tps = measured.tokens_per_second();
  return tps > 0.0 ? forecast.result.tokens_per_second() / tps : 0.0;
}

}  // namespace

Recording::Recording(Engine& engine, Trace trace)
    : engine_(engine), trace_(std::make_unique<Trace>(std::move(trace))) {
  recorder_ = std::make_unique<RouteRecorder>(
      engine_, trace_->info(),
      [to = trace_.get()](const TraceToken& token) { return to->Add(token); });
}

Status Recording::Begin(Engine& engine, std::optional<Recording>& recording) {
  const MemoryPlan& memory = engine.memory();
  TRY(Trace trace,
      Trace::Create(
          {.model = engine.id(),
           .expert_bytes = memory.n_experts > 0 ? memory.all_experts / memory.n_experts : 0,
           .pools = engine.facts().pools,
           .depth = engine.facts().max_look_ahead,
           .has_weights = true,
           .has_prompt_steps = true,
           .token_layers = engine.facts().token_layers}));
  recording.emplace(Recording(engine, std::move(trace)));
  return {};
}

void Recording::Stop() {
  status_ = recorder_->status();
  recorder_.reset();
}

Result<Forecast> Recording::Finish(const Sequence& sequence, const EngineOptions& options,
                                   const OutputPath& path) {
  TRY_STATUS(status_);
  TRY(NativeEngine* const native, AsNative(engine_, "--record"));
  TRY(const std::optional<MachineCosts> costs, native->ProbeCosts(sequence));
  if (!costs) {
    return Fail(Errc::kInvalidRequest,
                "what decode costs cannot be measured: one token's experts have no room; raise "
                "--ram or --cache");
  }
  TRY(const Trace trace, WithCosts(*trace_, *costs));
  TRY_STATUS(WriteTrace(path, trace));
  std::vector<uint64_t> slots;
  for (const ExpertPools::Pool& pool : trace.info().pools.pools) slots.push_back(pool.slots);
  const bool looks_ahead = engine_.facts().max_look_ahead > 0;
  TRY(ReplayResult result,
      Replay(trace, {.pool_slots = std::move(slots),
                     .policy = engine_.facts().policy,
                     .costs = *costs,
                     .predictor = {.name = looks_ahead ? options.predictor : "none"}}));
  return Forecast{.costs = *costs, .result = std::move(result)};
}

std::string ForecastText(const Forecast& forecast, const PhaseStats& measured) {
  const MachineCosts& costs = forecast.costs;
  const ReplayResult& result = forecast.result;
  std::string text = Format(
      "sim      {:.2f} tok/s by the simulator, {:.3f} of what was measured; {:.1f} % hits there\n",
      result.tokens_per_second(), Ratio(forecast, measured), 100.0 * result.hit_rate());
  return text +
         Format(
             "costs    {:.1f} ms a token, {:.1f} % of it experts, {:.2f} and {:.2f} times more at "
             "their first two uses; {}/s from disk after {:.2f} ms, {} reads at a time, {:.2f} ms "
             "for a layer that waits; beside "
             "reads {:.2f} and beside computation {:.2f} times as long\n",
             1e3 * costs.compute, 100.0 * costs.expert_share, costs.first_use, costs.second_use,
             FormatBytes(static_cast<uint64_t>(costs.bandwidth)), 1e3 * costs.read_latency,
             costs.io_depth, 1e3 * costs.layer_wait, costs.compute_beside, costs.read_beside);
}

void AddForecast(Json& object, const Forecast& forecast, const PhaseStats& measured) {
  const MachineCosts& costs = forecast.costs;
  object.Set("sim_tps", forecast.result.tokens_per_second())
      .Set("sim_ratio", Ratio(forecast, measured))
      .Set("sim_hit_rate", forecast.result.hit_rate())
      .Set("sim_prefetches", forecast.result.prefetches)
      .Set("sim_stall_seconds", forecast.result.stall_seconds)
      .Set("cost_compute_seconds", costs.compute)
      .Set("cost_expert_share", costs.expert_share)
      .Set("cost_first_use", costs.first_use)
      .Set("cost_second_use", costs.second_use)
      .Set("cost_bandwidth", costs.bandwidth)
      .Set("cost_read_latency", costs.read_latency)
      .Set("cost_layer_wait", costs.layer_wait)
      .Set("cost_compute_beside", costs.compute_beside)
      .Set("cost_read_beside", costs.read_beside);
}

}  // namespace moestro
