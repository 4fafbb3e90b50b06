// SPDX-License-Identifier: MIT
#include "native/plan/fit.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/number.h"
#include "decide/slots/budget.h"
#include "devices/local_transport.h"
#include "devices/step_buffers.h"
#include "engine/plan/memory_plan.h"
#include "memory/layer_values.h"
#include "memory/memory_use.h"
#include "memory/recent_cells.h"
#include "native/catalog.h"
#include "native/plan/engine_plan.h"

namespace moestro {
namespace {

// ggml's graph buffers, as seen with models of 0.02 to 30 billion parameters. Only for this
// estimate: the engine measures its own.
constexpr uint64_t kGraphEstimate = 64 * kMiB;
// The largest size of memory in the tables of sizes.
constexpr uint64_t kLargestSize = uint64_t{1} << 50;

// The request with the chunk that a small budget gets.
BudgetRequest LeastRequest(const ExpertCatalog& catalog, uint32_t n_used, const FixedMemory& fixed,
                           uint64_t block) {
  BudgetRequest request{.dense = fixed.dense,
                        .kv = fixed.kv,
                        .work = fixed.least_work > 0 ? fixed.least_work : fixed.work,
                        .staging = fixed.staging,
                        .process = fixed.process,
                        .bytes_per_table_byte = kBytesPerTableByte,
                        .classes = {}};
  for (const PoolShape& pool : catalog.pools) {
    request.classes.push_back(
        {.slot_bytes = pool.slot_bytes(block), .experts = pool.experts, .minimum = n_used});
  }
  return request;
}

}  // namespace

FixedMemory EstimateFixed(const ModelSpec& spec, uint64_t dense_bytes, uint32_t n_ctx,
                          const MemoryShape& remembers, uint32_t chunk) {
  CellCounts cells{.all = KvBlocks::BlocksFor(n_ctx) * KvBlocks::kPositions};
  if (remembers.window() > 0) {
    const uint32_t recent = RecentRoom::Of(remembers.window(), 1, chunk).cells();
    if (recent < cells.all) cells.recent = recent;
  }
  return {.dense = dense_bytes,
          .kv = KvCache::BytesFor(remembers, cells) + FewestStates(1) * remembers.state_bytes(),
          .work = StepBuffers::BytesFor(spec, {.chunk = chunk}),
          .process = UsualProcess(spec.n_vocab, 1) + kGraphEstimate};
}

std::optional<Fit> FitIn(uint64_t ram, const ExpertCatalog& catalog, uint32_t n_used,
                         const FixedMemory& fixed, uint64_t block) {
  BudgetRequest request = LeastRequest(catalog, n_used, fixed, block);
  request.budget = std::max(ram, SmallestBudget(request));
  if (ram < (fixed.smallest > 0 ? fixed.smallest : request.budget)) return std::nullopt;
  Fit fit{.ram = ram};
  for (const SlotClass& pool : request.classes) fit.experts += pool.experts;
  const auto slots_of = [](const Result<BudgetSplit>& split) {
    return std::accumulate(split->slots.begin(), split->slots.end(), uint64_t{0});
  };
  // SmallestBudget() goes by the file's own pools, which a hosted model's catalog does not have.
  fit.slots = slots_of(SplitBudget(request));
  request.work = fixed.work;
  if (const auto whole = SplitBudget(request)) fit.slots = slots_of(whole);
  return fit;
}

std::vector<Fit> WhatFits(const ExpertCatalog& catalog, uint32_t n_used, const FixedMemory& fixed,
                          uint64_t block) {
  BudgetRequest request = LeastRequest(catalog, n_used, fixed, block);
  const uint64_t smallest = fixed.smallest > 0 ? fixed.smallest : SmallestBudget(request);
  request.work = fixed.work;
  for (SlotClass& pool : request.classes) pool.minimum = pool.experts;
  const uint64_t everything = std::max(SmallestBudget(request), smallest);
  std::vector<uint64_t> budgets = {smallest};
  // 256, 384, 512, 768 MiB, 1, 1.5, 2, 3, 4, 6, 8 GiB and so on: the sizes that memory comes in.
  const uint64_t last = std::min(everything, kLargestSize);
  for (uint64_t size = 256 * kMiB; size < last; size *= 2) {
    for (const uint64_t budget : {size, size + size / 2}) {
      if (budget > budgets.front() && budget < everything) budgets.push_back(budget);
    }
  }
  if (everything > budgets.back()) budgets.push_back(everything);

  std::vector<Fit> fits;
  for (const uint64_t budget : budgets) {
    const std::optional<Fit> fit = FitIn(budget, catalog, n_used, fixed, block);
    if (fit) fits.push_back(*fit);
  }
  return fits;
}

std::vector<DeviceFit> WhatFitsOnDevice(const ExpertCatalog& catalog, const ModelSpec& spec,
                                        const FixedMemory& fixed, uint32_t chunk) {
  uint64_t experts = 0;
  for (const PoolShape& pool : catalog.pools) experts += pool.is_low ? 0 : pool.experts;
  if (experts == 0) return {};
  LaunchShape shape{.n_embd = spec.n_embd_expert(), .n_used = spec.router.n_used};
  for (const CopyForm& form : catalog.forms) shape.n_ff = std::max(shape.n_ff, form.n_ff);
  const uint64_t work = LocalTransport::WorkBytes(shape);
  const uint64_t dense = fixed.dense + fixed.kv + fixed.work +
                         LocalTransport::BytesThere(shape, uint64_t{chunk} * spec.router.n_used);
  const bool is_in_memory = std::ranges::any_of(spec.layers, [](const LayerSpec& layer) {
    const LatentAttentionSpec* latent = layer.latent_attention();
    return LayerMemory::Of(layer).state_values > 0 || layer.pooled_attention() != nullptr ||
           (latent != nullptr && latent->is_joined);
  });
  const uint64_t bytes = catalog.total_bytes();
  const uint64_t everything = work + dense + bytes;
  std::vector<uint64_t> sizes;
  for (uint64_t size = 256 * kMiB; size < std::min(everything, kLargestSize); size *= 2) {
    for (const uint64_t vram : {size, size + size / 2}) {
      if (vram > work && vram < everything) sizes.push_back(vram);
    }
  }
  sizes.push_back(AlignUp(everything, kMiB));
  std::vector<DeviceFit> fits;
  for (const uint64_t vram : sizes) {
    // Experts count with their average size: the types that a device takes are not known here.
    const uint64_t token = bytes / experts * spec.router.n_used;
    const bool has_dense = !is_in_memory && vram >= work + dense + token;
    const uint64_t left = vram - work - (has_dense ? dense : 0);
    const double share = static_cast<double>(left) / static_cast<double>(bytes);
    fits.push_back(
        {.vram = vram,
         .slots = std::min(experts, static_cast<uint64_t>(share * static_cast<double>(experts))),
         .experts = experts,
         .has_dense = has_dense});
  }
  return fits;
}

Result<MemoryNeeds> MemoryNeeds::Of(const ModelFile& model, const ContextWish& wish) {
  const ModelSpec& spec = model.spec;
  TRY(MemoryShape remembers, MemoryShape::Of(spec, wish.kv_type));
  MemoryNeeds needs{
      .ctx = std::min(wish.ctx, spec.n_ctx_train),
      .dense_bytes = model.weights.dense_bytes() + JoinedKeys::BytesFor(spec, model.weights),
      .remembers = std::move(remembers),
      .catalog = MakeCatalog(model.weights)};
  needs.chunk = std::min(ChunkFor(wish.chunk, spec.router), needs.ctx);
  needs.fixed = EstimateFixed(spec, needs.dense_bytes, needs.ctx, needs.remembers, needs.chunk);
  return needs;
}

}  // namespace moestro
