// SPDX-License-Identifier: MIT
#include "sim/sim_pools.h"

#include <algorithm>

#include "core/extent.h"
#include "decide/slots/budget.h"

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

}  // namespace moestro
