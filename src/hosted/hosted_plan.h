// SPDX-License-Identifier: MIT
// The meaning of a user's options for the hosted engine: sizes of libllama's context, the rows of a
// chunk and the slots that follow, the predictor. Also the graph's experts as a catalog for
// residency.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/batch.h"
#include "core/expert_catalog.h"
#include "core/run_identity.h"
#include "decide/ahead/predictors.h"
#include "engine/engine.h"
#include "engine/engine_options.h"
#include "engine/plan/memory_plan.h"
#include "hosted/learned_graph.h"
#include "model/embedding_form.h"
#include "model/gguf_file.h"

namespace moestro {

// kUnsupported: an option needs the native engine. kInvalidRequest: no sequence fits, or more are
// wanted than libllama has.
Status CheckHosted(const EngineOptions& options);

// The context's positions. kInvalidRequest: none.
Result<uint32_t> HostedContext(const GgufFile& file, const EngineOptions& options);

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

// As SizesOf(), for a context that gives embeddings: every row is an output, and a text goes
// through the layers at once unless its form may be split. kMostEmbedded texts go together.
constexpr uint32_t kMostEmbedded = 64;
ContextSizes SizesForEmbeddings(uint32_t n_ctx, uint32_t chunk, const EmbeddingForm& form,
                                uint64_t n_vocab);
// The number of first texts that go through the layers together: as many as a chunk holds whole,
// and one at least. REQUIRES: there is a text.
size_t TextsOfChunk(std::span<const std::span<const Token>> texts, uint32_t chunk);

// One layer of the catalog for each group. A group of fewer than three matrices gets empty ones for
// the rest.
ExpertCatalog CatalogOf(std::span<const ExpertGroup> groups);

// Groups are the layers; experts and K are the largest of any group.
MoeShape ShapeOf(std::span<const ExpertGroup> groups);

// The slots of each pool with which `rows` rows can go through the layers together, whatever
// experts they choose: a chunk cannot be split after its routing.
std::vector<uint64_t> SlotsForRows(const LearnedGraph& graph, const ExpertCatalog& catalog,
                                   uint32_t rows);

struct ChunkPlan {
  uint32_t chunk = 0;
  PlannedMemory memory;
};

// Plans a budget whose slots hold the experts of `chunk` rows.
using PlanForChunk =
    std::function<Result<PlannedMemory>(const EngineOptions& asked, uint32_t chunk)>;

// Chooses how many rows of a prompt go through the layers at once, and plans memory for that.
// libllama's bits depend on the chunk, so a chunk set by the user is kept, and the budget must hold
// the experts that its rows may choose. The default chunk gives way to a small budget, in few
// steps, and a message names the size. `usual`: the chunk in a budget that is large enough. Errors:
// those of `plan`.
Result<ChunkPlan> PlanChunk(const EngineOptions& options, uint32_t usual, const PlanForChunk& plan);

// Chooses the predictor that reads ahead. The predictor of early routers is replaced by none if no
// router can be evaluated early. Errors: those of CheckPredictorName() and, with "paths", of
// ReadPathsFor(). `model`: the path of the model's file.
Result<PredictorChoice> HostedPredictor(const EngineOptions& options, const EngineFacts& facts,
                                        const std::string& model);

// The number of first rows that libllama computes in one graph if layers have a state: runs of
// different sequences, all as long as the first run. libllama cuts other batches into several
// graphs. REQUIRES: `rows` is not empty.
size_t EvenRows(std::span<const BatchRow> rows);

}  // namespace moestro
