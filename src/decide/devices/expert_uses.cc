// SPDX-License-Identifier: MIT
#include "decide/devices/expert_uses.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <tuple>
#include <utility>

namespace moestro {

void ExpertUses::Count(const LayerPlan& plan, bool with_prompts) {
  for (const PlannedExpert& expert : plan.experts) {
    if (expert.use == Use::kPrefill && with_prompts) prompt_rows_[expert.key] += expert.n_pairs;
    if (expert.use != Use::kDecode) continue;
    uses_[expert.key] = {.count = Of(expert.key) + 1.0, .step = step_};
    if (!std::exchange(decodes_, true)) ++decoded_;
  }
}

void ExpertUses::Assume(ExpertKey key, double share) {
  uses_[key] = {.count = share / (1.0 - std::exp2(-1.0 / kHalfLife)), .step = step_};
}

double ExpertUses::Of(ExpertKey key) const {
  const auto found = uses_.find(key);
  if (found == uses_.end()) return 0.0;
  const auto age = static_cast<double>(step_ - found->second.step);
  return found->second.count * std::exp2(-age / kHalfLife);
}

std::vector<double> ExpertUses::Table(By by, uint32_t n_layers, uint32_t n_expert) const {
  std::vector<double> table(size_t{n_layers} * n_expert);
  const auto at = [&](ExpertKey key) -> double& {
    return table[size_t{key.layer.value} * n_expert + key.expert.value];
  };
  if (by == By::kPrompt) {
    for (const auto& [key, rows] : prompt_rows_) at(key) = static_cast<double>(rows);
  } else {
    for (const auto& [key, uses] : uses_) at(key) = Of(key);
  }
  return table;
}

std::vector<ExpertKey> ExpertUses::MostFirst(By by) const {
  std::vector<std::pair<ExpertKey, double>> counts;
  if (by == By::kPrompt) {
    for (const auto& [key, rows] : prompt_rows_) counts.emplace_back(key, rows);
  } else {
    for (const auto& [key, uses] : uses_) counts.emplace_back(key, Of(key));
  }
  std::ranges::sort(counts, [](const auto& a, const auto& b) {
    return std::tie(b.second, a.first) < std::tie(a.second, b.first);
  });
  std::vector<ExpertKey> keys;
  for (const auto& [key, count] : counts) keys.push_back(key);
  return keys;
}

}  // namespace moestro
