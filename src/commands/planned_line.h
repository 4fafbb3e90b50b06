// SPDX-License-Identifier: MIT
// Speed that `moestro plan` predicted, beside the speed of the run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/json.h"
#include "engine/engine.h"
#include "engine/run_report.h"
#include "learned/kept_plan.h"

namespace moestro {

// nullopt: nothing was predicted for the engine's model, threads and share of experts, or too few
// tokens were decoded, or the run is of a kind that plans do not cover: several rows in a step, a
// device, fewer experts than the router chose.
std::optional<PlannedSpeed> FindPlanned(const std::string& folder, uint32_t threads,
                                        const Engine& engine, const RunReport& report);
// Keeps the share of requests that memory lacked, for later plans of the model, if plans cover the
// kind of run and at most 60 % of the experts were in memory.
void KeepCachingSeen(const std::string& folder, const Engine& engine, const RunReport& report);
// The line about the prediction, with its newline.
std::string PlannedText(const PlannedSpeed& planned, const RunReport& report);
// "planned_low_tps" and "planned_high_tps".
void AddPlanned(Json& object, const PlannedSpeed& planned);

}  // namespace moestro
