// SPDX-License-Identifier: MIT
// Records a measured run as a trace and compares it with the simulator's forecast, to check the
// simulator's clock.
//
// Thread rule: the engine's thread.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "core/machine.h"
#include "engine/engine.h"
#include "engine/recorded_routing.h"
#include "engine/run_stats.h"
#include "sim/replay.h"
#include "trace/trace.h"

namespace moestro {

struct Forecast {
  MachineCosts costs = {};
  ReplayResult result = {};
};

class Recording {
 public:
  // Begins to record all steps of the engine. The engine must outlive the recording.
  static Status Begin(Engine& engine, std::optional<Recording>& recording);

  // Ends the recording.
  void Stop();
  // REQUIRES: Stop(). Measures the costs of decode, writes the trace to `path` and replays it.
  // Errors: those of ProbeCosts() and WriteTrace(); kInvalidRequest: the slots do not hold a
  // token's experts.
  Result<Forecast> Finish(const Sequence& sequence, const EngineOptions& options,
                          const OutputPath& path);

 private:
  explicit Recording(Engine& engine, Trace trace);

  Engine& engine_;
  std::unique_ptr<Trace> trace_;
  std::unique_ptr<RouteRecorder> recorder_;
  Status status_;
};

// The forecast's lines in `moestro bench`; `measured`: the measured phase that the forecast is for.
std::string ForecastText(const Forecast& forecast, const PhaseStats& measured);
void AddForecast(Json& object, const Forecast& forecast, const PhaseStats& measured);

}  // namespace moestro
