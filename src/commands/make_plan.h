// SPDX-License-Identifier: MIT
// Plans a model: reads its directory, here or elsewhere, and predicts its speeds on a machine.
#pragma once

#include <string>

#include "base/result.h"
#include "base/stop_signal.h"
#include "commands/plan_report.h"
#include "engine/engine_options.h"
#include "hub/hub_settings.h"
#include "speed/remote_price.h"

namespace moestro {

struct PlanWish {
  std::string model = {};  // file, name or address
  HubSettings settings = {};
  EngineOptions engine = {};    // its budget, context, type of keys and values, and threads count
  std::string machine = {};     // a file of a machine's speeds; empty: this machine's
  bool has_choices = true;      // the repository's other files, too
  StopSignal* stop = nullptr;   // of requests; null: an interrupt ends the process
  bool measures_again = false;  // this machine's speeds are measured again
  Network network = {};         // to the hosts of engine.device.remote
};

// Takes the compute threads for two seconds unless this machine's speeds are kept: no engine is
// open. Errors of FindSubject(), PlannedModel::Of(), FindSpeeds() and SpeedPredictor.
Result<PlanReport> MakePlan(const PlanWish& wish);

// Keeps the predicted speeds, which later runs of the model compare with their own.
void KeepForRuns(const PlanReport& report);

}  // namespace moestro
