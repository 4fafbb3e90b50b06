// SPDX-License-Identifier: MIT
// Turns router logits into experts and weights. Pure. The order of steps is that which GGUF models
// are converted for: probabilities, the K experts with the largest (bias added and other groups
// left out, where a model has those), the probabilities of the chosen without the bias, then
// optional renormalisation and scale.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/batch.h"
#include "core/model_spec.h"

namespace moestro {

// The smallest sum that F16 distinguishes from zero: renormalising never divides by less.
inline constexpr float kSmallestSum = 6.103515625e-5F;

// logits: [n_tokens][n_expert] row-major; selection_bias: [n_expert] or empty. Ties go to the lower
// expert id, NaN counts as the smallest value, so a row never repeats an expert whatever the input.
// REQUIRES: logits.size() is a multiple of spec.n_expert; 0 < n_used <= n_expert; groups are of
// equal size, at least two, and those in use hold n_used experts. `candidates`: number of the best
// experts of each row that are kept besides, the chosen K included; 0: none.
Routing Route(const RouterSpec& spec, std::span<const float> logits,
              std::span<const float> selection_bias = {}, uint32_t candidates = 0);

// Routes layer after layer: a router keeps its room, and a routing that is given again keeps the
// memory of its vectors. Calls of one shape allocate once.
class Router {
 public:
  void Route(const RouterSpec& spec, std::span<const float> logits,
             std::span<const float> selection_bias, uint32_t candidates, Routing& routing);

  // The same where each token's experts are known, at least K of them, each once: the K of the
  // largest probabilities, and then candidates among the others. A candidate's score plus the row's
  // range stays below those of the given experts.
  void Follow(const RouterSpec& spec, std::span<const float> logits,
              std::span<const int32_t> experts, uint32_t candidates, Routing& routing);

  // Whether Route() chooses the same experts, in the same order: experts [n_tokens][K], as a device
  // has chosen them by the same logits.
  bool AreChoices(const RouterSpec& spec, std::span<const float> logits,
                  std::span<const float> selection_bias, std::span<const ExpertId> experts);

 private:
  struct Rule {
    std::span<const float> selection_bias = {};
    std::span<const int32_t> experts = {};  // empty: logits choose
  };
  void RouteRows(const RouterSpec& spec, std::span<const float> logits, const Rule& rule,
                 uint32_t candidates, Routing& routing);
  void FollowRow(const RouterSpec& spec, std::span<const float> logits,
                 std::span<const int32_t> experts, uint32_t best);
  void RouteRow(const RouterSpec& spec, std::span<const float> logits, std::span<const float> bias,
                uint32_t best);
  void Judge(const RouterSpec& spec, std::span<const float> logits, std::span<const float> bias);
  void KeepBestGroups(const RouterSpec& spec);
  void AddCandidates(std::span<const float> scores, float range,
                     RoutingCandidates& candidates) const;

  // Scratch of one row.
  std::vector<float> probabilities_;  // [expert]
  std::vector<float> selection_;      // [expert]
  std::vector<float> group_scores_;   // [group]
  std::vector<uint16_t> groups_;      // best first
  std::vector<uint16_t> order_;       // experts, best first
};

// Turns the raw values of K chosen experts (RoutingCandidates) into their weights, in place.
void WeighChosen(const RouterSpec& spec, std::span<float> values);

}  // namespace moestro
