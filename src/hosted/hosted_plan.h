// SPDX-License-Identifier: MIT
// Makes from the graph's experts what residency and the plan of memory need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/batch.h"
#include "core/expert_catalog.h"
#include "core/model_id.h"
#include "hosted/learned_graph.h"

namespace moestro {

// One layer of the catalog for each group. If a group has fewer than three matrices, the others are
// empty.
ExpertCatalog CatalogOf(std::span<const ExpertGroup> groups);

// Groups are the layers; experts and K are the largest of any group.
MoeShape ShapeOf(std::span<const ExpertGroup> groups);

// The most rows that may go through the layers together, so that all of their experts have slots. A
// chunk cannot be split after its routing. 0: not even one row fits. `slots`: by pool.
uint32_t RowsThatFit(const LearnedGraph& graph, const ExpertCatalog& catalog,
                     std::span<const uint64_t> slots, uint32_t chunk);

// The number of first rows that libllama computes in one graph if layers have a state: runs of
// different sequences, all as long as the first run. libllama cuts other batches into several
// graphs. REQUIRES: `rows` is not empty.
size_t EvenRows(std::span<const BatchRow> rows);

}  // namespace moestro
