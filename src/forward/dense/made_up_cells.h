// SPDX-License-Identifier: MIT
// Makes up keys and values without computing them, for measuring the cost of a long context.
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "core/cells.h"
#include "memory/kv_cache.h"

namespace moestro {

// Fills cells (`recent` in layers that have cells of the last positions alone) with seeded numbers
// of about N(0, 1), different in each cell, equal on every machine. kDevice.
Status MakeUpCells(const KvCache& kv, std::span<const CellRun> cells,
                   std::span<const CellRun> recent, uint64_t seed);

}  // namespace moestro
