// SPDX-License-Identifier: MIT
#include "decide/layer/router.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "core/ids.h"

namespace moestro {
namespace {

// The smallest sum that F16 tells from zero: renormalising never divides by less.
constexpr float kSmallestSum = 6.103515625e-5F;

constexpr float kNever = -std::numeric_limits<float>::infinity();

void Softmax(std::span<const float> logits, std::span<float> probabilities) {
  float largest = kNever;
  for (const float x : logits) largest = std::max(largest, std::isnan(x) ? largest : x);
  double sum = 0.0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const float e = std::exp(logits[i] - largest);
    probabilities[i] = std::isnan(e) ? 0.0F : e;
    sum += static_cast<double>(probabilities[i]);
  }
  const float scale = sum > 0.0 ? static_cast<float>(1.0 / sum) : 0.0F;
  for (float& p : probabilities) p *= scale;
}

void Sigmoid(std::span<const float> logits, std::span<float> probabilities) {
  for (size_t i = 0; i < logits.size(); ++i) {
    probabilities[i] = std::isnan(logits[i]) ? 0.0F : 1.0F / (1.0F + std::exp(-logits[i]));
  }
}

// One token after another; the buffers are kept between them.
class TokenRouter {
 public:
  TokenRouter(const RouterSpec& spec, std::span<const float> selection_bias, uint32_t candidates)
      : spec_(spec),
        bias_(selection_bias),
        n_candidates_(candidates),
        probabilities_(spec.n_expert),
        selection_(spec.n_expert),
        group_scores_(spec.n_group),
        order_(spec.n_expert) {}

  void Route(std::span<const float> logits, std::span<ExpertId> experts, std::span<float> weights) {
    Judge(logits);
    if (spec_.n_group > 1) KeepBestGroups();
    TakeLargest(selection_, order_, std::max(spec_.n_used, n_candidates_));
    for (size_t k = 0; k < spec_.n_used; ++k) {
      experts[k] = ExpertId{order_[k]};
      weights[k] = probabilities_[order_[k]];
    }
  }

  // The best experts of the row that was routed last.
  void AddCandidates(std::span<const float> logits, RoutingCandidates& candidates) const {
    // A logit tells experts apart that have the same probability in F32.
    const bool by_logit = bias_.empty() && spec_.n_group == 1;
    const std::span<const float> scores = by_logit ? logits : std::span<const float>(selection_);
    for (uint32_t i = 0; i < n_candidates_; ++i) {
      candidates.experts.push_back(ExpertId{order_[i]});
      candidates.scores.push_back(scores[order_[i]]);
      candidates.raw.push_back(probabilities_[order_[i]]);
    }
    const auto [low, high] = std::ranges::minmax(scores);
    candidates.ranges.push_back(std::isfinite(high - low) ? high - low : 0.0F);
  }

 private:
  // Probabilities are the weights; selection, which a bias may shift, decides who is chosen.
  void Judge(std::span<const float> logits) {
    if (spec_.gating == Gating::kSoftmax) Softmax(logits, probabilities_);
    if (spec_.gating == Gating::kSigmoid) Sigmoid(logits, probabilities_);
    if (spec_.gating == Gating::kSoftmaxOfChosen) {
      std::ranges::transform(logits, probabilities_.begin(),
                             [](float x) { return std::isnan(x) ? kNever : x; });
    }
    selection_ = probabilities_;
    for (size_t i = 0; i < bias_.size(); ++i) {
      const float shifted = selection_[i] + bias_[i];
      selection_[i] = std::isnan(shifted) ? kNever : shifted;
    }
  }

  // A group is worth the sum of its two best experts.
  void KeepBestGroups() {
    const size_t size = spec_.n_expert / spec_.n_group;
    for (size_t g = 0; g < spec_.n_group; ++g) {
      float first = kNever;
      float second = kNever;
      for (size_t e = g * size; e < (g + 1) * size; ++e) {
        second = std::max(second, std::min(first, selection_[e]));
        first = std::max(first, selection_[e]);
      }
      const float score = first + second;
      group_scores_[g] = std::isnan(score) ? kNever : score;
    }
    std::vector<uint16_t> groups(spec_.n_group);
    TakeLargest(group_scores_, groups, spec_.n_group_used);
    for (size_t i = spec_.n_group_used; i < groups.size(); ++i) {
      std::fill_n(selection_.begin() + static_cast<ptrdiff_t>(groups[i] * size), size, kNever);
    }
  }

  // order := indices with the `n` largest values first, largest first, ties by index.
  static void TakeLargest(const std::vector<float>& values, std::vector<uint16_t>& order,
                          uint32_t n) {
    std::iota(order.begin(), order.end(), uint16_t{0});
    const auto larger = [&](uint16_t a, uint16_t b) {
      return values[a] != values[b] ? values[a] > values[b] : a < b;
    };
    std::partial_sort(order.begin(), order.begin() + n, order.end(), larger);
  }

  const RouterSpec& spec_;
  std::span<const float> bias_;
  uint32_t n_candidates_;
  std::vector<float> probabilities_;
  std::vector<float> selection_;
  std::vector<float> group_scores_;
  std::vector<uint16_t> order_;
};

}  // namespace

void WeighChosen(const RouterSpec& spec, std::span<float> values) {
  if (spec.gating == Gating::kSoftmaxOfChosen) {
    const std::vector<float> chosen(values.begin(), values.end());
    Softmax(chosen, values);
  }
  if (spec.renormalise) {
    const float sum = std::max(std::accumulate(values.begin(), values.end(), 0.0F), kSmallestSum);
    for (float& w : values) w /= sum;
  }
  if (spec.weight_scale != 0.0F && spec.weight_scale != 1.0F) {
    for (float& w : values) w *= spec.weight_scale;
  }
}

Routing Route(const RouterSpec& spec, std::span<const float> logits,
              std::span<const float> selection_bias, uint32_t candidates) {
  CHECK(spec.n_used > 0 && spec.n_used <= spec.n_expert);
  CHECK(logits.size() % spec.n_expert == 0);
  CHECK(selection_bias.empty() || selection_bias.size() == spec.n_expert);
  const size_t n_tokens = logits.size() / spec.n_expert;
  Routing routing{.n_tokens = static_cast<uint32_t>(n_tokens),
                  .n_used = spec.n_used,
                  .experts = std::vector<ExpertId>(n_tokens * spec.n_used),
                  .weights = std::vector<float>(n_tokens * spec.n_used)};
  CHECK(candidates == 0 || (candidates >= spec.n_used && candidates <= spec.n_expert));
  routing.candidates.per_row = candidates;
  TokenRouter router(spec, selection_bias, candidates);
  for (size_t t = 0; t < n_tokens; ++t) {
    const std::span weights = std::span(routing.weights).subspan(t * spec.n_used, spec.n_used);
    const std::span row = logits.subspan(t * spec.n_expert, spec.n_expert);
    router.Route(row, std::span(routing.experts).subspan(t * spec.n_used, spec.n_used), weights);
    WeighChosen(spec, weights);
    if (candidates > 0) router.AddCandidates(row, routing.candidates);
  }
  return routing;
}

}  // namespace moestro
