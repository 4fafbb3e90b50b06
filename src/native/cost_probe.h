// SPDX-License-Identifier: MIT
// Measures the costs of decode on this machine for the simulator, after the run, with the engine's
// own reads of missing experts.
//
// Thread rule: the engine thread.
#pragma once

#include <functional>
#include <optional>

#include "base/result.h"
#include "core/expert_catalog.h"
#include "core/machine.h"
#include "core/run_identity.h"
#include "engine/run_stats.h"
#include "engine/watchers.h"
#include "forward/experts/expert_exec.h"
#include "residency/residency.h"
#include "store/read_queue.h"

namespace moestro {

// Everything is borrowed.
struct CostParts {
  // Computes the last row of a sequence again. After an error the row is cut back.
  std::function<Status(PhaseStats& once)> repeat;
  Residency& residency;
  const ReadQueue& queue;
  const ExpertExec& experts;
  Watchers& watchers;
  const ExpertCatalog& catalog;
  const MoeShape& shape;
};

// Measures the decoding of one row at a time by repeating it. Changes recency and the experts in
// slots. Afterwards the row's keys and values come from other experts. nullopt: the slots do not
// hold the row's experts. kIo: the row has been cut back. REQUIRES: the CPU computes every expert
// exactly.
Result<std::optional<MachineCosts>> MeasureCosts(const CostParts& parts);

}  // namespace moestro
