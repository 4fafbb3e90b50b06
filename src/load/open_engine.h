// SPDX-License-Identifier: MIT
// Opens a model with the engine that suits it: the only code that depends on all engines.
//
// Thread rule: that of Engine.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "engine/engine.h"
#include "load/model_to_load.h"
#include "native/plan/fit.h"

namespace moestro {

// Errors: those of ModelToLoad::Open(); kInvalidRequest when the budget is too small (names the
// smallest that works, broken down).
Result<std::unique_ptr<Engine>> OpenEngine(const std::string& model_path,
                                           const EngineOptions& options, Progress progress = {});
// Opens an engine on a file that is open already.
Result<std::unique_ptr<Engine>> OpenEngine(ModelToLoad model, const EngineOptions& options,
                                           Progress progress = {});
// The plan of the budget, without reading a weight. Errors: those of OpenEngine(), except kIo while
// reading.
Result<MemoryPlan> PlanEngine(const std::string& model_path, const EngineOptions& options);

// The bytes that do not depend on the number of slots, as PlanEngine() finds them, with the
// smallest budget that works: for every command that evaluates and takes no more beside the engine
// than `run` does. Devices stay alone: where one is to be chosen, the CPU computes. kNoMemory: this
// machine has no addresses for so much. Other errors: those of PlanEngine().
Result<FixedMemory> MeasureFixed(const std::string& model_path, const EngineOptions& options);

}  // namespace moestro
