// SPDX-License-Identifier: MIT
// Router logits -> which experts, with what weight. Pure.
// The order of steps is the one GGUF models are converted for: probabilities, the K experts with
// the largest (bias added and other groups left out, where a model has those), the probabilities of
// the chosen without the bias, then optional renormalisation and scale.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/model_spec.h"
#include "core/routing.h"

namespace moestro {

// logits: [n_tokens][n_expert] row-major; selection_bias: [n_expert] or empty. Ties go to the lower
// expert id, NaN counts as the smallest value, so a row never repeats an expert whatever the input.
// REQUIRES: logits.size() is a multiple of spec.n_expert; 0 < n_used <= n_expert; groups are of
// equal size, at least two, and those in use hold n_used experts.
// `candidates`: that many of each row are kept besides, K of them the chosen; 0: none.
Routing Route(const RouterSpec& spec, std::span<const float> logits,
              std::span<const float> selection_bias = {}, uint32_t candidates = 0);

// Routes layer after layer: a router keeps its room, and a routing that is given again keeps the
// memory of its vectors. Calls of one shape allocate once.
class Router {
 public:
  void Route(const RouterSpec& spec, std::span<const float> logits,
             std::span<const float> selection_bias, uint32_t candidates, Routing& routing);

 private:
  void RouteRow(const RouterSpec& spec, std::span<const float> logits, std::span<const float> bias,
                uint32_t best);
  void Judge(const RouterSpec& spec, std::span<const float> logits, std::span<const float> bias);
  void KeepBestGroups(const RouterSpec& spec);
  void AddCandidates(std::span<const float> scores, RoutingCandidates& candidates) const;

  // Scratch of one row.
  std::vector<float> probabilities_;  // [expert]
  std::vector<float> selection_;      // [expert]
  std::vector<float> group_scores_;   // [group]
  std::vector<uint16_t> groups_;      // best first
  std::vector<uint16_t> order_;       // experts, best first
};

// The raw values of K chosen experts (RoutingCandidates) -> their weights, in place.
void WeighChosen(const RouterSpec& spec, std::span<float> values);

}  // namespace moestro
