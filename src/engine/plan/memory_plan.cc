// SPDX-License-Identifier: MIT
#include "engine/plan/memory_plan.h"

#include <algorithm>
#include <cstddef>

#include "base/number.h"
#include "base/system_limits.h"
#include "base/terminal.h"
#include "core/extent.h"
#include "decide/slots/budget.h"
#include "engine/plan/io_depth.h"

namespace moestro {
namespace {

// Growth of a process beyond its resident memory when planning: heap growth, thread stacks, the
// ring, pages of libraries not touched yet. The bandwidth probe's buffers come beside that.
constexpr uint64_t kProcessGrowth = 12 * kMiB;
// Resident memory differs by so much from one start to the next.
constexpr uint64_t kJitter = 2 * kMiB;
// Memory before an engine takes any: code, libraries and heap (21 to 22 MiB were measured in run,
// bench, eval and logits, up to 28 in a server), a token of a vocabulary (156 to 324 bytes), and
// the part of a command beside the engine, unless that is more.
constexpr uint64_t kUsualResident = 28 * kMiB;
constexpr uint64_t kUsualCaller = 4 * kMiB;
constexpr uint64_t kUsualToken = 352;
// The process's fixed share: code, libraries, heap (15 to 45 MiB were measured), the vocabulary
// (300 bytes a token), a driver of each device, and scratch of more threads than most machines
// have.
constexpr uint64_t kReservedProcess = 64 * kMiB;
constexpr uint64_t kReservedToken = 512;
constexpr uint64_t kReservedDevice = 256 * kMiB;
constexpr uint32_t kReservedThreads = 64;
// Left alone when the user names no budget.
constexpr uint64_t kLeastMargin = 256 * kMiB;

std::vector<SlotClass> ClassesOf(const ExpertCatalog& catalog, uint64_t block,
                                 std::span<const uint64_t> fewest) {
  std::vector<SlotClass> classes;
  for (size_t p = 0; p < catalog.pools.size(); ++p) {
    const PoolShape& pool = catalog.pools[p];
    classes.push_back({.slot_bytes = pool.slot_bytes(block),
                       .experts = pool.experts,
                       .minimum = fewest[p],
                       .is_low = pool.is_low});
  }
  return classes;
}

// Bytes of the probe's buffers.
uint64_t ProbeGrowth(uint32_t depth, uint64_t request, const ExpertCatalog& catalog,
                     uint64_t block) {
  uint64_t largest = 0;
  for (const PoolShape& pool : catalog.pools) {
    for (const uint64_t bytes : pool.slice_bytes) {
      largest = std::max(largest, WindowCapacity(bytes, block));
    }
  }
  return depth * std::min(largest, request);
}

uint64_t FixedCache(const EngineOptions& options, const std::vector<SlotClass>& classes) {
  if (!options.cache) return 0;
  if (options.cache->bytes > 0) return options.cache->bytes;
  uint64_t all = 0;
  for (const SlotClass& c : classes) all += c.is_low ? 0 : c.slot_bytes * c.experts;
  const double share = options.cache->percent / 100.0;
  return std::max<uint64_t>(1, static_cast<uint64_t>(static_cast<double>(all) * share));
}

// Sets the memory that the process takes beside the engine's own parts.
Status FindProcess(const EngineOptions& options, uint64_t block, const FixedBytes& fixed,
                   const ExpertCatalog& catalog, BudgetRequest& request) {
  const uint64_t resident = fixed.resident > 0 ? fixed.resident : ResidentMemory();
  const uint64_t later =
      ProbeGrowth(options.io_depth, fixed.request, catalog, block) + fixed.threads * fixed.thread;
  const uint64_t taken = resident + kProcessGrowth + later;
  if (!options.has_fixed_reserves()) {
    request.process = taken + options.caller_bytes;
    const uint64_t more = options.caller_bytes > kUsualCaller ? options.caller_bytes : 0;
    request.usual_process = std::max(UsualProcess(fixed.n_vocab, fixed.vocabularies) + later + more,
                                     request.process + kJitter);
    return {};
  }
  const uint64_t reserved = kReservedProcess + fixed.n_vocab * kReservedToken +
                            fixed.devices * kReservedDevice + kProcessGrowth +
                            ProbeGrowth(kIoDepths.back(), kLeastRequest, catalog, block) +
                            kReservedThreads * fixed.thread;
  request.process = reserved + options.caller_bytes;
  if (taken <= reserved) return {};
  return Fail(Errc::kInvalidRequest,
              "--ram repeats a lossy text only while the process itself takes at most {}, and here "
              "it takes {}: fix the slots with --cache SIZE, or give --lossy-mode opportunistic",
              FormatBytes(reserved), FormatBytes(taken));
}

// Splits the free memory, for runs without a budget: up to the limit where a cgroup slows this
// process down. Where that is too little the model runs slowed down: a bound on speed is not a
// bound on memory.
Result<BudgetSplit> SplitFreeMemory(BudgetRequest& request) {
  request.budget = ResidentMemory() + BudgetWithin(UnhinderedMemory());
  Result<BudgetSplit> split = SplitBudget(request);
  const uint64_t all = ResidentMemory() + BudgetWithin(AvailableMemory());
  if (split || all <= request.budget) return split;
  request.budget = all;
  split = SplitBudget(request);
  if (split) {
    LogWarning(
        "this model needs more than memory.high of this process's cgroup leaves, so the "
        "kernel will slow it down; raise that limit");
  }
  return split;
}

}  // namespace

uint64_t UsualProcess(uint32_t n_vocab, uint32_t vocabularies) {
  return kUsualResident + uint64_t{n_vocab} * vocabularies * kUsualToken + kUsualCaller +
         kProcessGrowth;
}

uint64_t BudgetWithin(uint64_t room) {
  const uint64_t margin = std::max(room / 20, kLeastMargin);
  return room - std::min(room, margin);
}

uint64_t MultiplyScratch(const ModelSpec& spec, uint32_t chunk) {
  uint64_t widest = spec.n_embd;
  for (const LayerSpec& layer : spec.layers) {
    const FeedForwardSpec& ff = layer.feed_forward;
    widest = std::max<uint64_t>({widest, ff.n_ff_shared, ff.n_ff_dense});
    const AttentionSpec* a = layer.attention();
    if (a != nullptr) widest = std::max<uint64_t>({widest, a->n_embd_q(), a->n_embd_out()});
    if (const LatentAttentionSpec* latent = layer.latent_attention(); latent != nullptr) {
      widest = std::max<uint64_t>({widest, latent->n_query(), latent->n_embd_out(),
                                   uint64_t{latent->n_head} * latent->n_key()});
    }
    if (const PooledAttentionSpec* pooled = layer.pooled_attention(); pooled != nullptr) {
      widest = std::max<uint64_t>(
          {widest, pooled->n_query(), uint64_t{pooled->n_group} * pooled->n_out});
    }
    if (layer.delta_net() != nullptr) {
      widest = std::max<uint64_t>(widest, layer.delta_net()->n_values());
    }
    if (layer.mamba2() != nullptr) {
      widest = std::max<uint64_t>(widest, layer.mamba2()->n_inner());
    }
  }
  // Products of all residual streams are of the rows of one graph (PieceRows()).
  constexpr uint32_t kRowsOfGraph = 256;
  const uint64_t values = std::max(uint64_t{chunk} * widest,
                                   uint64_t{std::min(chunk, kRowsOfGraph)} * spec.n_residual());
  return values * sizeof(float) + 4 * kMiB;
}

Result<PlannedMemory> PlanMemory(const EngineOptions& options, const ExpertCatalog& catalog,
                                 uint64_t block, std::span<const uint64_t> fewest,
                                 const FixedBytes& fixed) {
  ReturnFreedMemory();
  block = std::max(block, kPlannedBlock);
  BudgetRequest request;
  request.budget = options.ram_bytes;
  request.dense = fixed.dense;
  request.kv = fixed.kv;
  request.work = fixed.work;
  request.staging = fixed.staging;
  TRY_STATUS(FindProcess(options, block, fixed, catalog, request));
  request.bytes_per_table_byte = kBytesPerTableByte;
  request.classes = ClassesOf(catalog, block, fewest);
  request.low_share = options.low_share;
  request.fixed_cache = FixedCache(options, request.classes);
  if (options.takes_smallest) request.budget = SmallestBudget(request);
  TRY(const BudgetSplit split,
      request.budget > 0 ? SplitBudget(request) : SplitFreeMemory(request));

  PlannedMemory planned{.plan = {.budget = request.budget,
                                 .dense = request.dense,
                                 .kv = request.kv,
                                 .kv_type = options.kv_type,
                                 .work = request.work,
                                 .staging = request.staging,
                                 .process = request.process + split.table_bytes,
                                 .usual_process = std::max(request.process, request.usual_process),
                                 .slots = split.slot_bytes,
                                 .repeating_cache = options.chooses_by_slots() ? split.room : 0,
                                 .all_experts = catalog.total_bytes(),
                                 .smallest = split.smallest},
                        .slots = split.slots};
  for (size_t i = 0; i < split.slots.size(); ++i) {
    if (request.classes[i].is_low) {
      planned.plan.n_low_slots += split.slots[i];
      continue;
    }
    planned.plan.n_slots += split.slots[i];
    planned.plan.n_experts += request.classes[i].experts;
  }
  return planned;
}

}  // namespace moestro
