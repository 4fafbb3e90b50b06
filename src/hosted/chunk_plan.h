// SPDX-License-Identifier: MIT
// Chooses how many rows of a prompt go through the layers at once, and plans memory for that.
//
// libllama's bits depend on the chunk. So a chunk set by the user is kept, and the budget must hold
// the experts that its rows may choose. The default chunk gives way to a small budget, in few
// steps, and a message names the size.
#pragma once

#include <cstdint>
#include <functional>

#include "base/result.h"
#include "engine/engine_options.h"
#include "engine/plan/memory_plan.h"

namespace moestro {

struct ChunkPlan {
  uint32_t chunk = 0;
  PlannedMemory memory;
};

// Plans a budget whose slots hold the experts of `chunk` rows.
using PlanForChunk =
    std::function<Result<PlannedMemory>(const EngineOptions& asked, uint32_t chunk)>;

// `usual`: the chunk in a budget that is large enough. Errors: those of `plan`.
Result<ChunkPlan> PlanChunk(const EngineOptions& options, uint32_t usual, const PlanForChunk& plan);

}  // namespace moestro
