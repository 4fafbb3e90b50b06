// SPDX-License-Identifier: MIT
// Sizes of libllama's context, the graph's experts as a catalog for residency, and slots for the
// plan of memory. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/batch.h"
#include "core/expert_catalog.h"
#include "core/model_id.h"
#include "hosted/learned_graph.h"

namespace moestro {

// Sizes of libllama's context.
struct ContextSizes {
  uint32_t chunk = 0;    // rows of a llama_decode(), at most
  uint32_t outputs = 0;  // rows with logits in a chunk; at least one for each place
  // libllama's sequences, for texts that run and kept texts. A state takes much memory, so models
  // with states have fewer places: for each text one for the last state and one for the state being
  // written.
  uint32_t places = 0;
  uint32_t places_of_states = 0;
};
// libllama's limit of sequences leaves room for so many texts, each with two states.
constexpr uint32_t kMostTexts = 126;
// n_vocab: 0 if unknown. REQUIRES: 1 to kMostTexts sequences.
ContextSizes SizesOf(uint32_t n_ctx, uint32_t chunk, uint32_t sequences, uint64_t n_vocab);

// One layer of the catalog for each group. A group of fewer than three matrices gets empty ones for
// the rest.
ExpertCatalog CatalogOf(std::span<const ExpertGroup> groups);

// Groups are the layers; experts and K are the largest of any group.
MoeShape ShapeOf(std::span<const ExpertGroup> groups);

// The slots of each pool with which `rows` rows can go through the layers together, whatever
// experts they choose: a chunk cannot be split after its routing.
std::vector<uint64_t> SlotsForRows(const LearnedGraph& graph, const ExpertCatalog& catalog,
                                   uint32_t rows);

// The number of first rows that libllama computes in one graph if layers have a state: runs of
// different sequences, all as long as the first run. libllama cuts other batches into several
// graphs. REQUIRES: `rows` is not empty.
size_t EvenRows(std::span<const BatchRow> rows);

}  // namespace moestro
