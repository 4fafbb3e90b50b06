// SPDX-License-Identifier: MIT
#include "engine/fit.h"

#include <numeric>

#include "base/bytes.h"
#include "decide/budget.h"
#include "decide/kv_blocks.h"
#include "forward/dense/layer_graph.h"

namespace moestro {
namespace {

// Code, libraries, vocabulary, heap and ggml's graph buffers, as seen with models of 0.02 to 30
// billion parameters. Only for this estimate: the engine measures its own process.
constexpr uint64_t kProcessEstimate = 160 * kMiB;

}  // namespace

FixedMemory EstimateFixed(const ModelSpec& spec, uint64_t dense_bytes, uint32_t n_ctx,
                          uint32_t chunk) {
  return {.dense = dense_bytes,
          .kv = KvCache::BytesFor(spec, KvBlocks::BlocksFor(n_ctx) * KvBlocks::kPositions),
          .work = StepBuffers::BytesFor(spec, {.chunk = chunk}),
          .process = kProcessEstimate};
}

std::vector<Fit> WhatFits(const ExpertCatalog& catalog, uint32_t n_used, const FixedMemory& fixed,
                          uint64_t block) {
  BudgetRequest request{.dense = fixed.dense,
                        .kv = fixed.kv,
                        .work = fixed.work,
                        .process = fixed.process,
                        .classes = {}};
  uint64_t experts = 0;
  uint64_t everything = fixed.dense + fixed.kv + fixed.work + fixed.process;
  uint64_t smallest = everything;
  for (const PoolShape& pool : catalog.pools) {
    request.classes.push_back(
        {.slot_bytes = pool.slot_bytes(block), .experts = pool.experts, .minimum = n_used});
    experts += pool.experts;
    everything += pool.slot_bytes(block) * pool.experts;
    smallest += pool.slot_bytes(block) * n_used;
  }
  std::vector<uint64_t> budgets = {AlignUp(smallest, kMiB)};
  // 256, 384, 512, 768 MiB, 1, 1.5, 2, 3, 4, 6, 8 GiB and so on: the sizes that memory comes in.
  for (uint64_t size = 256 * kMiB; size < everything; size *= 2) {
    for (const uint64_t budget : {size, size + size / 2}) {
      if (budget > budgets.front() && budget < everything) budgets.push_back(budget);
    }
  }
  budgets.push_back(AlignUp(everything, kMiB));

  std::vector<Fit> fits;
  for (const uint64_t budget : budgets) {
    request.budget = budget;
    const auto split = SplitBudget(request);
    if (!split) continue;
    const uint64_t slots = std::accumulate(split->slots.begin(), split->slots.end(), uint64_t{0});
    fits.push_back({.ram = budget, .slots = slots, .experts = experts});
  }
  return fits;
}

}  // namespace moestro
