// SPDX-License-Identifier: MIT
// Measures the costs of decode on this machine for the simulator, after the run, with the engine's
// own reads of missing experts.
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

// Measures the decoding of one row at a time by repeating `again`. Changes recency and the experts
// in slots. Afterwards the row's keys and values come from other experts. nullopt: the slots do not
// hold the row's experts. kIo: the row has been cut back. REQUIRES: runner.CanRepeat(again), one
// row; the CPU computes every expert exactly.
Result<std::optional<MachineCosts>> MeasureCosts(const CostParts& parts, const Batch& again);

}  // namespace moestro
