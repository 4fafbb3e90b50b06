// SPDX-License-Identifier: MIT
// From what the graph's experts are to what residency and the plan of memory must know.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/batch.h"
#include "core/expert_catalog.h"
#include "core/model_id.h"
#include "hosted/learned_graph.h"

namespace moestro {

// A layer of the catalog for each group. Groups of fewer matrices than three have empty ones.
ExpertCatalog CatalogOf(std::span<const ExpertGroup> groups);

// Groups are the layers; experts and K are the largest of any group.
MoeShape ShapeOf(std::span<const ExpertGroup> groups);

// Rows that go through the layers together, at most, so that the experts of any of them have slots:
// a chunk cannot be split once it is routed. 0: one row has no room. `slots`: by pool.
uint32_t RowsThatFit(const LearnedGraph& graph, const ExpertCatalog& catalog,
                     std::span<const uint64_t> slots, uint32_t chunk);

// Of the rows' beginning, as many as libllama computes in one graph where layers have a state: runs
// of one sequence each, all as long as the first, of different sequences. It cuts other batches
// into several graphs. REQUIRES: there are rows.
size_t EvenRows(std::span<const BatchRow> rows);

}  // namespace moestro
