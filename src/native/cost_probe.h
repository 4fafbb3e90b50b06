// SPDX-License-Identifier: MIT
// What decode costs on this machine, for the simulator: measured after the work, with the engine's
// own reads of experts that it has not.
//
// Thread rule: the engine thread.
#pragma once

#include <optional>

#include "base/result.h"
#include "core/batch.h"
#include "core/expert_catalog.h"
#include "core/machine_costs.h"
#include "core/model_id.h"
#include "engine/watchers.h"
#include "forward/experts/expert_exec.h"
#include "native/step_runner.h"
#include "residency/residency.h"
#include "store/read_queue.h"

namespace moestro {

// Everything is borrowed.
struct CostParts {
  StepRunner& runner;
  Residency& residency;
  const ReadQueue& queue;
  const ExpertExec& experts;
  Watchers& watchers;
  const ExpertCatalog& catalog;
  const MoeShape& shape;
};

// Of decoding one row at a time, by repeating `again`. Changes recency and which experts are in
// slots; the row's keys and values are other experts' afterwards. nullopt: the slots do not hold
// the row's experts. kIo: the row is cut back. REQUIRES: runner.CanRepeat(again), one row; every
// expert is computed by the CPU as it is.
Result<std::optional<MachineCosts>> MeasureCosts(const CostParts& parts, const Batch& again);

}  // namespace moestro
