// SPDX-License-Identifier: MIT
#include "decide/layer_planner.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "base/check.h"

namespace moestro {

LayerPlan PlanLayer(LayerId layer, const Routing& routing, std::span<const RowKind> kinds,
                    const ExpertPresence& is_present) {
  CHECK(kinds.size() == routing.n_tokens);
  LayerPlan plan{.layer = layer,
                 .n_rows = routing.n_tokens,
                 .n_used = routing.n_used,
                 .experts = {},
                 .row_of = std::vector<uint32_t>(routing.experts.size()),
                 .pair_of = std::vector<uint32_t>(routing.experts.size()),
                 .weights = routing.weights};
  // Each expert once, with its number of rows.
  constexpr uint32_t kNone = ~0U;
  uint16_t highest = 0;
  for (const ExpertId e : routing.experts) highest = std::max(highest, e.value);
  std::vector<uint32_t> place_of(size_t{highest} + 1, kNone);
  for (size_t i = 0; i < routing.experts.size(); ++i) {
    const ExpertId e = routing.experts[i];
    uint32_t& place = place_of[e.value];
    if (place == kNone) {
      place = static_cast<uint32_t>(plan.experts.size());
      plan.experts.push_back({.key = {.layer = layer, .expert = e}, .use = Use::kPrefill});
    }
    PlannedExpert& expert = plan.experts[place];
    ++expert.n_pairs;
    if (kinds[i / routing.n_used] == RowKind::kDecode) expert.use = Use::kDecode;
  }
  for (PlannedExpert& expert : plan.experts) expert.is_present = is_present(expert.key);
  std::ranges::stable_partition(plan.experts, &PlannedExpert::is_present);
  // Pairs in the order of the experts.
  uint32_t pairs = 0;
  std::vector<uint32_t> next(plan.experts.size());
  for (uint32_t x = 0; x < plan.experts.size(); ++x) {
    place_of[plan.experts[x].key.expert.value] = x;
    plan.experts[x].first_pair = next[x] = pairs;
    pairs += plan.experts[x].n_pairs;
  }
  for (size_t i = 0; i < routing.experts.size(); ++i) {
    const uint32_t pair = next[place_of[routing.experts[i].value]]++;
    plan.row_of[pair] = static_cast<uint32_t>(i / routing.n_used);
    plan.pair_of[i] = pair;
  }
  return plan;
}

std::vector<ExpertKey> PlanReadAhead(LayerId layer, uint32_t n_layer, uint32_t n_expert,
                                     uint32_t n_used, size_t prompt_rows) {
  constexpr double kLeastShare = 0.8;
  // With T rows of K from E experts, even routing leaves out (1 - K/E)^T of them.
  const double skipped =
      std::pow(1.0 - static_cast<double>(n_used) / n_expert, static_cast<double>(prompt_rows));
  std::vector<ExpertKey> keys;
  if (1.0 - skipped < kLeastShare || layer.value + 1U >= n_layer) return keys;
  const LayerId next{static_cast<uint16_t>(layer.value + 1)};
  for (uint16_t e = 0; e < n_expert; ++e) keys.push_back({.layer = next, .expert = {e}});
  return keys;
}

}  // namespace moestro
