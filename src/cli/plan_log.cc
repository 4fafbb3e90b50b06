// SPDX-License-Identifier: MIT
#include "cli/plan_log.h"

#include <cstddef>

#include "base/format.h"

namespace moestro {
namespace {

std::string WeightsOf(const LayerPlan& plan, const PlannedExpert& expert) {
  std::string text;
  for (size_t i = 0; i < plan.pair_of.size(); ++i) {
    const uint32_t pair = plan.pair_of[i];
    if (pair < expert.first_pair || pair >= expert.first_pair + expert.n_pairs) continue;
    text += Format("{}{:.3f}", text.empty() ? "" : " ", plan.weights[i]);
  }
  return text;
}

}  // namespace

void PlanLog::Note(const LayerPlan& plan) {
  if (plan.layer.value == 0) plans_.clear();
  plans_.push_back(plan);
}

std::string PlanLog::Text() const {
  std::string text = "plans of the last step: expert (where from, weight by row)\n";
  for (const LayerPlan& plan : plans_) {
    text += Format("layer {:3}:", plan.layer.value);
    for (const PlannedExpert& expert : plan.experts) {
      text += Format("  {} ({}, {})", expert.key.expert.value,
                     expert.is_present ? "memory" : "disk", WeightsOf(plan, expert));
    }
    text += '\n';
  }
  return text;
}

}  // namespace moestro
