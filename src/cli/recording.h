// SPDX-License-Identifier: MIT
// A measured run as a trace, and what the simulator says of it: whether its clock can be believed.
//
// Thread rule: the engine's thread.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "core/machine_costs.h"
#include "engine/engine.h"
#include "engine/route_recorder.h"
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
  // Everything that the engine evaluates from now on. The engine must outlive it.
  static Status Begin(Engine& engine, std::optional<Recording>& recording);

  // Nothing that is evaluated from now on.
  void Stop();
  // REQUIRES: Stop(). Measures what decode costs, writes the trace to `path` and replays it.
  // Errors: what Engine::ProbeCosts() and WriteTrace() say; kInvalidRequest: a token's experts have
  // no room.
  Result<Forecast> Finish(const Sequence& sequence, const EngineOptions& options,
                          const std::string& path);

 private:
  explicit Recording(Engine& engine, Trace trace);

  Engine& engine_;
  std::unique_ptr<Trace> trace_;
  std::unique_ptr<RouteRecorder> recorder_;
  Status status_;
};

// As `moestro bench` prints it; `measured` is what was predicted.
std::string ForecastText(const Forecast& forecast, const PhaseStats& measured);
void AddForecast(Json& object, const Forecast& forecast, const PhaseStats& measured);

}  // namespace moestro
