// SPDX-License-Identifier: MIT
// Passes the choices of a plan's prompt rows to the slot tables of all pools. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "core/ids.h"
#include "core/layer_plan.h"

namespace moestro {

// Passes a prompt's choices to the slot tables, to each table those of its own pool. Pools of low
// copies get none: a prompt counts uses of a model's own experts. `pool_of(key)` is the pool of an
// expert, `table_of(pool)` that pool's SlotTable.
template <class PoolOf, class TableOf>
void LearnPrompt(const LayerPlan& plan, PoolOf pool_of, TableOf table_of) {
  const auto pool_of_expert = [&](ExpertId e) {
    return pool_of(ExpertKey{.layer = plan.layer, .expert = e});
  };
  std::vector<ExpertId> left;
  for (size_t begin = 0; begin < plan.learned.size(); begin += plan.n_used) {
    left.assign_range(std::span(plan.learned).subspan(begin, plan.n_used));
    while (!left.empty()) {
      const auto pool = pool_of_expert(left.front());
      const auto others = std::ranges::stable_partition(
          left, [&](ExpertId e) { return pool_of_expert(e) == pool; });
      table_of(pool).LearnPrompt(plan.layer, std::span(left.begin(), others.begin()));
      left.erase(left.begin(), others.begin());
    }
  }
}

}  // namespace moestro
