// SPDX-License-Identifier: MIT
#include "sim/sim_memory.h"

#include <algorithm>
#include <ranges>
#include <utility>

#include "base/result.h"
#include "core/extent.h"
#include "decide/slots/budget.h"
#include "decide/slots/slot_table.h"

namespace moestro {
namespace {

// Slots are planned for blocks of this size (engine/plan/memory_plan.h).
constexpr uint64_t kBlock = 4096;

// Pools of the own copies in the replay: one for all where the trace has no pools, or a size is
// given.
ExpertPools OwnPools(const TraceInfo& info, const ReplayOptions& options) {
  if (info.pools.is_known() && options.expert_bytes == 0) return info.pools;
  return {.pools = {{}}};
}

std::vector<uint64_t> ExpertsOf(const ExpertPools& pools, const MoeShape& shape) {
  std::vector<uint64_t> experts(pools.pools.size());
  for (uint16_t l = 0; l < shape.n_layer; ++l) {
    for (uint16_t e = 0; e < shape.n_expert; ++e) {
      ++experts[pools.of({.layer = ExpertLayerId{l}, .expert = {e}}, shape.n_expert)];
    }
  }
  return experts;
}

}  // namespace

SimPools::SimPools(const TraceInfo& info, const ReplayOptions& options)
    : shape_(info.shape()), own_(OwnPools(info, options)), layers_(shape_.n_layer) {
  const bool is_told = own_.pools.front().expert_bytes() > 0;
  const uint64_t bytes = options.expert_bytes > 0 ? options.expert_bytes : info.expert_bytes;
  for (const ExpertPools::Pool& pool : own_.pools) {
    auto& matrices = matrices_.emplace_back();
    for (size_t m = 0; m < kMatrices; ++m) {
      matrices[m] = static_cast<double>(is_told ? pool.matrix_bytes[m] : bytes) /
                    (is_told ? 1.0 : static_cast<double>(kMatrices));
    }
  }
  for (uint16_t l = 0; l < shape_.n_layer; ++l) {
    for (uint16_t e = 0; e < shape_.n_expert; ++e) {
      const uint32_t pool = of({.layer = ExpertLayerId{l}, .expert = {e}});
      mean_bytes_ += expert_bytes(pool) / shape_.experts();
      if (!std::ranges::contains(layers_[l], pool)) layers_[l].push_back(pool);
    }
  }
  if (options.low_bytes == 0) return;
  auto& low = matrices_.emplace_back();
  low.fill(static_cast<double>(options.low_bytes) / static_cast<double>(kMatrices));
  for (std::vector<uint32_t>& layer : layers_) layer.push_back(low_pool());
}

Result<std::vector<uint64_t>> SlotsOfPools(const TraceInfo& info, const ReplayOptions& options) {
  const ExpertPools pools = OwnPools(info, options);
  if (!options.pool_slots.empty()) {
    if (options.pool_slots.size() == pools.pools.size()) return options.pool_slots;
    return Fail(Errc::kUsage, "slots of {} pools; the trace has {}", options.pool_slots.size(),
                pools.pools.size());
  }
  if (pools.pools.size() == 1) return std::vector{options.slots};
  const MoeShape& shape = info.shape();
  const std::vector<uint64_t> experts = ExpertsOf(pools, shape);
  BudgetRequest request;
  uint64_t all = 0;
  for (size_t p = 0; p < pools.pools.size(); ++p) {
    SlotClass& slots = request.classes.emplace_back();
    for (const uint64_t bytes : pools.pools[p].matrix_bytes) {
      slots.slot_bytes += WindowCapacity(bytes, kBlock);
    }
    slots.experts = experts[p];
    slots.minimum = shape.n_used;
    all += slots.slot_bytes * slots.experts;
  }
  const double share = static_cast<double>(options.slots) / static_cast<double>(shape.experts());
  request.budget = UINT64_MAX / 2;
  request.fixed_cache =
      std::max<uint64_t>(1, static_cast<uint64_t>(static_cast<double>(all) * share));
  TRY(const BudgetSplit split, SplitBudget(request));
  return split.slots;
}

SimMemory::SimMemory(std::vector<SlotTable> tables, const SimPools& pools, Machine& machine,
                     double setup)
    : tables_(std::move(tables)), pools_(pools), machine_(machine), setup_(setup) {
  for (const SlotTable& table : tables_) uses_.emplace_back(table.slots());
}

void SimMemory::SetObserver(const SlotTable::Observer& observer) {
  for (SlotTable& table : tables_) table.SetObserver(observer);
}

void SimMemory::BeginSequence() {
  for (SlotTable& table : tables_) table.BeginSequence();
}

std::optional<Asked> SimMemory::Ask(const PlannedExpert& expert, Reading reading) {
  const ExpertKey key = expert.key;
  const uint32_t pool = pools_.of(key);
  const std::optional<Placement> placed = tables_[pool].Request(key, expert.use, expert.n_pairs);
  if (!placed) return std::nullopt;
  if (placed->was == Placement::Was::kAbsent) uses_[pool][placed->slot.value] = 0;
  for (const uint32_t other : pools_.of_layer(key.layer)) {
    if (expert.use == Use::kDecode && other != pool) {
      tables_[other].OtherCopyUsed(key, expert.n_pairs);
    }
  }
  Asked asked{.expert = expert, .placed = *placed};
  asked.expert.is_staged = false;
  if (reading != Reading::kFree) {
    asked.reads = ReadsOf(key, *placed, reading == Reading::kUrgent);
  }
  return asked;
}

std::optional<Asked> SimMemory::Stage(const PlannedExpert& expert) {
  if (has(expert.key)) return Ask(expert, Reading::kUrgent);
  return Asked{.expert = expert, .reads = Read(expert.key, true)};
}

void SimMemory::Finish(const Asked& asked) {
  if (asked.expert.is_staged) return;
  SlotTable& its = table(asked.expert.key);
  if (asked.placed.was == Placement::Was::kAbsent) Land(asked.expert.key, asked.placed.slot);
  its.Unpin(asked.placed.slot);
}

bool SimMemory::has_all(std::span<const Machine::Ticket> reads) const {
  return std::ranges::all_of(reads,
                             [this](Machine::Ticket read) { return machine_.is_done(read); });
}

uint32_t SimMemory::Use(const Asked& asked) {
  uint8_t& uses = uses_[pools_.of(asked.expert.key)][asked.placed.slot.value];
  const uint32_t before = uses;
  if (uses < 2) ++uses;
  return before;
}

void SimMemory::Settle(uint32_t layer) {
  for (Prefetched& p : prefetched_) {
    if (p.key.layer.value != layer || p.is_ready || !has_all(p.reads)) continue;
    Land(p.key, p.slot);
    p.is_ready = true;
  }
}

void SimMemory::Adopt(ExpertKey key, std::span<const ExpertKey> keeps) {
  if (has(key)) return;
  SlotTable& its = table(key);
  const std::optional<Placement> placed = its.Adopt(key, keeps);
  if (!placed) return;
  uses_[pools_.of(key)][placed->slot.value] = 0;
  its.Landed(placed->slot);
  its.Unpin(placed->slot);
}

std::vector<ExpertCounts> SimMemory::stats() const {
  std::vector<ExpertCounts> all;
  for (const SlotTable& table : tables_) all.push_back(table.stats());
  return all;
}

std::vector<uint64_t> SimMemory::slots() const {
  std::vector<uint64_t> all;
  for (const SlotTable& table : tables_) all.push_back(table.slots());
  return all;
}

bool SimMemory::contains(ExpertKey key) const {
  return has(key) || (devices_ != nullptr && devices_->contains(key));
}

void SimMemory::BeginLayer(ExpertLayerId layer) {
  for (SlotTable& table : tables_) table.BeginLayer(layer);
  if (devices_ != nullptr) devices_->BeginLayer(layer);
}

void SimMemory::Predict(ExpertLayerId layer, std::span<const ExpertId> experts) {
  for (const uint32_t pool : pools_.of_layer(layer)) tables_[pool].Predict(layer, experts);
  if (devices_ != nullptr) devices_->Predict(layer, experts);
}

void SimMemory::LearnPrompt(const LayerPlan& plan) {
  moestro::LearnPrompt(
      plan, [this](ExpertKey key) { return pools_.of(key); },
      [this](uint32_t pool) -> SlotTable& { return tables_[pool]; });
}

bool SimMemory::Prefetch(ExpertKey key) {
  // Memory need not hold experts that a device has.
  if (!has(key) && contains(key)) return false;
  const std::optional<Placement> placed = table(key).Request(key, Use::kPrefetch);
  if (!placed) return false;
  const bool is_absent = placed->was == Placement::Was::kAbsent;
  if (is_absent) uses_[pools_.of(key)][placed->slot.value] = 0;
  prefetched_.push_back(
      {.key = key,
       .slot = placed->slot,
       .is_ready = !is_absent,
       .reads = is_absent ? (loading_[key] = Read(key, false)) : std::vector<Machine::Ticket>()});
  return true;
}

void SimMemory::Withdraw(ExpertKey key) {
  const auto p = Find(key);
  bool is_cut = false;
  for (const Machine::Ticket read : p->reads) is_cut = machine_.Cancel(read) || is_cut;
  if (is_cut) {
    loading_.erase(key);
    table(key).Failed(p->slot);
  } else if (!p->is_ready) {
    Land(key, p->slot);
  }
  table(key).Unpin(p->slot);
  prefetched_.erase(p);
}

// Releases a prefetched expert. Reads that no layer took over go on.
void SimMemory::Release(ExpertKey key) {
  const auto p = Find(key);
  if (!p->is_ready) Land(key, p->slot);
  table(key).Unpin(p->slot);
  prefetched_.erase(p);
}

bool SimMemory::is_complete(ExpertKey key) const {
  return has_all(std::ranges::find(prefetched_, key, &Prefetched::key)->reads);
}

// Reads that an expert needs that has just been requested.
std::vector<Machine::Ticket> SimMemory::ReadsOf(ExpertKey key, const Placement& placed,
                                                bool is_urgent) {
  if (placed.was == Placement::Was::kReady) return {};
  if (placed.was == Placement::Was::kAbsent) return loading_[key] = Read(key, is_urgent);
  const std::vector<Machine::Ticket>& reads = loading_.at(key);
  for (const Machine::Ticket read : reads) {
    if (is_urgent) machine_.Promote(read);
  }
  return reads;
}

std::vector<Machine::Ticket> SimMemory::Read(ExpertKey key, bool is_urgent) {
  std::vector<Machine::Ticket> reads;
  for (const double bytes : pools_.matrices(pools_.of(key))) {
    if (bytes == 0.0) continue;  // another read brings the matrix, or the expert lacks it
    reads.push_back(machine_.Read(bytes, is_urgent, reads.empty() ? setup_ : 0.0));
  }
  return reads;
}

void SimMemory::Land(ExpertKey key, SlotId slot) {
  loading_.erase(key);
  table(key).Landed(slot);
}

std::vector<SimMemory::Prefetched>::iterator SimMemory::Find(ExpertKey key) {
  const auto p = std::ranges::find(prefetched_, key, &Prefetched::key);
  CHECK(p != prefetched_.end());
  return p;
}

void FillSlots(std::vector<SlotTable>& tables, const SimPools& pools,
               std::span<const ExpertKey> keys) {
  std::vector<std::vector<ExpertKey>> chosen(tables.size());
  for (const ExpertKey key : keys) {
    const uint32_t pool = pools.of(key);
    if (chosen[pool].size() < tables[pool].slots()) chosen[pool].push_back(key);
  }
  for (size_t p = 0; p < tables.size(); ++p) {
    for (const ExpertKey key : chosen[p] | std::views::reverse) {
      const std::optional<Placement> placed = tables[p].Request(key, Use::kPrefetch);
      CHECK(placed.has_value());
      if (placed->was == Placement::Was::kAbsent) tables[p].Landed(placed->slot);
      tables[p].Unpin(placed->slot);
    }
  }
}

}  // namespace moestro
