// SPDX-License-Identifier: MIT
#include "decide/layer/layer_planner.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>

#include "base/result.h"

namespace moestro {

namespace {

constexpr uint32_t kNone = ~0U;

// Scales the weights of the remaining experts to the row's sum.
void Rescale(LayerPlan& plan) {
  for (size_t begin = 0; begin < plan.weights.size(); begin += plan.n_used) {
    double all = 0.0;
    double left = 0.0;
    for (size_t i = begin; i < begin + plan.n_used; ++i) {
      all += static_cast<double>(plan.weights[i]);
      if (plan.pair_of[i] != kNoPair) left += static_cast<double>(plan.weights[i]);
    }
    if (left <= 0.0 || left == all) continue;
    for (size_t i = begin; i < begin + plan.n_used; ++i) {
      plan.weights[i] = static_cast<float>(static_cast<double>(plan.weights[i]) * all / left);
    }
  }
}

}  // namespace

void LayerPlanner::Gather(ExpertLayerId layer, const Routing& routing,
                          std::span<const RowKind> kinds, const RowNeeds& needs) {
  uint16_t highest = 0;
  for (const ExpertId e : routing.experts) highest = std::max(highest, e.value);
  place_of_.assign(size_t{highest} + 1, kNone);
  needed_.clear();
  for (size_t i = 0; i < routing.experts.size(); ++i) {
    const ExpertId e = routing.experts[i];
    uint32_t& place = place_of_[e.value];
    if (place == kNone) {
      place = static_cast<uint32_t>(needed_.size());
      needed_.push_back({.planned = {.key = {.layer = layer, .expert = e}, .use = Use::kPrefill}});
    }
    Needed& expert = needed_[place];
    ++expert.planned.n_pairs;
    if (kinds[i / routing.n_used] == RowKind::kDecode) expert.planned.use = Use::kDecode;
    expert.need = std::min(expert.need, needs.needs.empty() ? Need::kOwn : needs.needs[i]);
  }
}

// Chooses the copy that runs; false: none.
bool LayerPlanner::ChooseCopy(const ExpertPresence& is_present, bool has_low, Needed& expert) {
  ExpertKey& key = expert.planned.key;
  expert.planned.is_present = is_present(key);
  if (expert.planned.is_present || expert.need == Need::kOwn) return true;
  if (!has_low) return false;
  key.copy = kLowCopy;
  expert.planned.is_present = is_present(key);
  return expert.planned.is_present || expert.need == Need::kLow;
}

// Present experts first, each group in order of appearance.
void LayerPlanner::ChooseCopies(const ExpertPresence& is_present, bool has_low, LayerPlan& plan) {
  absent_.clear();
  for (Needed& expert : needed_) {
    place_of_[expert.planned.key.expert.value] = kNone;
    if (!ChooseCopy(is_present, has_low, expert)) {
      plan.skipped.push_back({.expert = expert.planned.key.expert, .need = expert.need});
    } else if (expert.planned.is_present) {
      plan.experts.push_back(expert.planned);
    } else {
      absent_.push_back(expert.planned);
    }
  }
  plan.experts.append_range(absent_);
}

// Pairs in the order of the experts.
void LayerPlanner::PairRows(const Routing& routing, LayerPlan& plan) {
  uint32_t pairs = 0;
  next_.resize(plan.experts.size());
  for (uint32_t x = 0; x < plan.experts.size(); ++x) {
    place_of_[plan.experts[x].key.expert.value] = x;
    plan.experts[x].first_pair = next_[x] = pairs;
    pairs += plan.experts[x].n_pairs;
  }
  plan.row_of.resize(pairs);
  plan.pair_of.assign(routing.experts.size(), kNoPair);
  for (size_t i = 0; i < routing.experts.size(); ++i) {
    const uint32_t place = place_of_[routing.experts[i].value];
    if (place == kNone) continue;  // skipped
    const uint32_t pair = next_[place]++;
    plan.row_of[pair] = static_cast<uint32_t>(i / routing.n_used);
    plan.pair_of[i] = pair;
  }
}

void LayerPlanner::Plan(ExpertLayerId layer, const Routing& routing, std::span<const RowKind> kinds,
                        const ExpertPresence& is_present, const RowNeeds& needs, LayerPlan& plan) {
  CHECK(kinds.size() == routing.n_tokens);
  CHECK(needs.needs.empty() || needs.needs.size() == routing.experts.size());
  plan.Begin(layer, routing.n_tokens, routing.n_used);
  plan.weights = routing.weights;
  Gather(layer, routing, kinds, needs);
  ChooseCopies(is_present, needs.has_low, plan);
  PairRows(routing, plan);
  if (needs.rescales && !plan.skipped.empty()) Rescale(plan);
}

LayerPlan PlanLayer(ExpertLayerId layer, const Routing& routing, std::span<const RowKind> kinds,
                    const ExpertPresence& is_present, const RowNeeds& needs) {
  LayerPlan plan;
  LayerPlanner().Plan(layer, routing, kinds, is_present, needs, plan);
  return plan;
}

void ScaleWeights(std::span<const float> factors, LayerPlan& plan) {
  for (size_t i = 0; i < plan.weights.size(); ++i) {
    const uint32_t pair = plan.pair_of[i];
    if (pair == kNoPair) continue;
    const auto after = std::ranges::upper_bound(plan.experts, pair, {}, &PlannedExpert::first_pair);
    plan.weights[i] *= factors[std::prev(after)->key.expert.value];
  }
}

std::vector<ExpertKey> PlanReadAhead(ExpertLayerId layer, uint32_t n_layer, uint32_t n_expert,
                                     uint32_t n_used, size_t prompt_rows) {
  constexpr double kLeastShare = 0.8;
  // With T rows of K from E experts, even routing leaves out a share (1 - K/E)^T of the experts.
  const double skipped =
      std::pow(1.0 - static_cast<double>(n_used) / n_expert, static_cast<double>(prompt_rows));
  std::vector<ExpertKey> keys;
  if (1.0 - skipped < kLeastShare || layer.value + 1U >= n_layer) return keys;
  const ExpertLayerId next{static_cast<uint16_t>(layer.value + 1)};
  for (uint16_t e = 0; e < n_expert; ++e) keys.push_back({.layer = next, .expert = {e}});
  return keys;
}

}  // namespace moestro
