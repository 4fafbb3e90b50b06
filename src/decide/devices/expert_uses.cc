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
    const size_t at = RoomAt(expert.key);
    if (expert.use == Use::kPrefill && with_prompts) {
      prompt_rows_[at] += expert.n_pairs;
      has_prompt_ = true;
    }
    if (expert.use != Use::kDecode) continue;
    uses_[at] = {.count = Of(expert.key) + 1.0, .step = step_};
    if (!std::exchange(decodes_, true)) ++decoded_;
  }
}

void ExpertUses::Assume(ExpertKey key, double share) {
  uses_[RoomAt(key)] = {.count = share / (1.0 - std::exp2(-1.0 / kHalfLife)), .step = step_};
}

size_t ExpertUses::RoomAt(ExpertKey key) {
  const size_t at = At(key);
  if (at >= uses_.size()) {
    uses_.resize((key.copy + size_t{1}) * n_layers_ * n_expert_);
    prompt_rows_.resize(uses_.size());
  }
  return at;
}

double ExpertUses::CountAt(size_t i) const {
  if (i >= uses_.size() || uses_[i].count == 0.0) return 0.0;
  const Uses& its = uses_[i];
  const auto age = static_cast<double>(step_ - its.step);
  return its.count * std::exp2(-age / kHalfLife);
}

void ExpertUses::ForgetPrompt() {
  std::ranges::fill(prompt_rows_, 0);
  has_prompt_ = false;
}

std::vector<double> ExpertUses::Table(By by) const {
  std::vector<double> table(n_layers_ * n_expert_);
  for (size_t i = 0; i < table.size(); ++i) table[i] = Count(by, i);
  return table;
}

std::vector<ExpertKey> ExpertUses::MostFirst(By by) const {
  std::vector<std::pair<ExpertKey, double>> counts;
  for (size_t i = 0; i < uses_.size(); ++i) {
    if (const double count = Count(by, i); count > 0.0) counts.emplace_back(KeyAt(i), count);
  }
  std::ranges::sort(counts, [](const auto& a, const auto& b) {
    return std::tie(b.second, a.first) < std::tie(a.second, b.first);
  });
  std::vector<ExpertKey> keys;
  for (const auto& [key, count] : counts) keys.push_back(key);
  return keys;
}

}  // namespace moestro
