// SPDX-License-Identifier: MIT
#include "decide/layer/router.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "base/result.h"
#include "core/ids.h"

namespace moestro {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// The spans may be the same one.
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

// sqrt(log(1 + e^x))
void SoftplusRoot(std::span<const float> logits, std::span<float> probabilities) {
  constexpr float kLinear = 20.0F;  // log(1 + e^x) is x from here on, in F32
  for (size_t i = 0; i < logits.size(); ++i) {
    const float x = logits[i];
    probabilities[i] = std::isnan(x) ? 0.0F : std::sqrt(x > kLinear ? x : std::log1p(std::exp(x)));
  }
}

// order := indices with the `n` largest values first, largest first, ties by index.
void TakeLargest(const std::vector<float>& values, std::vector<uint16_t>& order, uint32_t n) {
  std::iota(order.begin(), order.end(), uint16_t{0});
  const auto larger = [&](uint16_t a, uint16_t b) {
    return values[a] != values[b] ? values[a] > values[b] : a < b;
  };
  std::partial_sort(order.begin(), order.begin() + n, order.end(), larger);
}

// The first `n` of order := as by TakeLargest(). Quicker for few of many: most values are smaller
// than the n largest so far.
void TakeFew(const std::vector<float>& values, std::vector<uint16_t>& order, uint32_t n) {
  uint32_t taken = 0;
  for (uint16_t i = 0; i < values.size(); ++i) {
    if (taken == n && !(values[i] > values[order[n - 1]])) continue;
    uint32_t at = taken < n ? taken++ : n - 1;
    for (; at > 0 && values[i] > values[order[at - 1]]; --at) order[at] = order[at - 1];
    order[at] = i;
  }
}

// Whether the experts are the best of a row by logits that differ so much that rounding in
// probabilities cannot change the order.
bool AreClearlyBest(std::span<const float> logits, std::span<const ExpertId> experts) {
  constexpr float kClear = 1e-4F;
  float least = std::numeric_limits<float>::infinity();
  for (const ExpertId e : experts) {
    if (!(logits[e.value] < least - kClear * std::max(1.0F, std::abs(logits[e.value]))))
      return false;
    least = logits[e.value];
  }
  const float below = least - kClear * std::max(1.0F, std::abs(least));
  // Logits from `below` up are those of the K chosen experts alone. NaN is not below either.
  size_t n_above = 0;
  for (const float logit : logits) n_above += logit < below ? 0 : 1;
  return n_above == experts.size();
}

// The distance of the largest value from the smallest that is not kNever.
float RangeOf(std::span<const float> values) {
  const float high = std::ranges::max(values);
  float low = high;
  for (const float value : values) low = value > kNever ? std::min(low, value) : low;
  return std::isfinite(high - low) ? high - low : 0.0F;
}

}  // namespace

// Probabilities are the weights; selection, which a bias may shift, orders the experts for the
// choice.
void Router::Judge(const RouterSpec& spec, std::span<const float> logits,
                   std::span<const float> bias) {
  probabilities_.resize(spec.n_expert);
  if (spec.gating == Gating::kSoftmax) Softmax(logits, probabilities_);
  if (spec.gating == Gating::kSigmoid) Sigmoid(logits, probabilities_);
  if (spec.gating == Gating::kSoftplusRoot) SoftplusRoot(logits, probabilities_);
  if (spec.gating == Gating::kSoftmaxOfChosen) {
    std::ranges::transform(logits, probabilities_.begin(),
                           [](float x) { return std::isnan(x) ? kNever : x; });
  }
  selection_ = probabilities_;
  for (size_t i = 0; i < bias.size(); ++i) {
    const float shifted = selection_[i] + bias[i];
    selection_[i] = std::isnan(shifted) ? kNever : shifted;
  }
}

// A group is worth the sum of its two best experts.
void Router::KeepBestGroups(const RouterSpec& spec) {
  const size_t size = spec.n_expert / spec.n_group;
  group_scores_.resize(spec.n_group);
  groups_.resize(spec.n_group);
  for (size_t g = 0; g < spec.n_group; ++g) {
    float first = kNever;
    float second = kNever;
    for (size_t e = g * size; e < (g + 1) * size; ++e) {
      second = std::max(second, std::min(first, selection_[e]));
      first = std::max(first, selection_[e]);
    }
    const float score = first + second;
    group_scores_[g] = std::isnan(score) ? kNever : score;
  }
  TakeLargest(group_scores_, groups_, spec.n_group_used);
  for (size_t i = spec.n_group_used; i < groups_.size(); ++i) {
    std::fill_n(selection_.begin() + static_cast<ptrdiff_t>(groups_[i] * size), size, kNever);
  }
}

// The first `best` of order_ := the experts that are given, then the others, each by probability.
// Given experts stand so high that no bonus up to the row's range lifts another above them.
void Router::FollowRow(const RouterSpec& spec, std::span<const float> logits,
                       std::span<const int32_t> experts, uint32_t best) {
  Judge(spec, logits, {});
  const float above = 1.0F + 2.0F * RangeOf(probabilities_);
  for (const int32_t e : experts) selection_[static_cast<size_t>(e)] += above;
  order_.resize(spec.n_expert);
  TakeLargest(selection_, order_, best);
}

// The first `best` of order_ := the row's best experts, the best first.
void Router::RouteRow(const RouterSpec& spec, std::span<const float> logits,
                      std::span<const float> bias, uint32_t best) {
  Judge(spec, logits, bias);
  if (spec.n_group > 1) KeepBestGroups(spec);
  order_.resize(spec.n_expert);
  constexpr uint32_t kFew = 16;
  (best <= kFew ? TakeFew : TakeLargest)(selection_, order_, best);
}

// The best experts of the row that was routed last, with the range of all that groups allow.
void Router::AddCandidates(std::span<const float> scores, float range,
                           RoutingCandidates& candidates) const {
  for (const uint16_t e : std::span(order_).first(candidates.per_row)) {
    candidates.experts.push_back(ExpertId{e});
    candidates.scores.push_back(scores[e]);
    candidates.raw.push_back(probabilities_[e]);
  }
  candidates.ranges.push_back(range);
}

void Router::Route(const RouterSpec& spec, std::span<const float> logits,
                   std::span<const float> selection_bias, uint32_t candidates, Routing& routing) {
  RouteRows(spec, logits, {.selection_bias = selection_bias}, candidates, routing);
}

void Router::Follow(const RouterSpec& spec, std::span<const float> logits,
                    std::span<const int32_t> experts, uint32_t candidates, Routing& routing) {
  CHECK(experts.size() >= logits.size() / spec.n_expert * spec.n_used);
  RouteRows(spec, logits, {.experts = experts}, candidates, routing);
}

void Router::RouteRows(const RouterSpec& spec, std::span<const float> logits, const Rule& rule,
                       uint32_t candidates, Routing& routing) {
  const std::span<const float> selection_bias = rule.selection_bias;
  CHECK(spec.n_used > 0 && spec.n_used <= spec.n_expert);
  CHECK(logits.size() % spec.n_expert == 0);
  CHECK(selection_bias.empty() || selection_bias.size() == spec.n_expert);
  CHECK(candidates == 0 || (candidates >= spec.n_used && candidates <= spec.n_expert));
  const size_t n_tokens = logits.size() / spec.n_expert;
  routing.n_tokens = static_cast<uint32_t>(n_tokens);
  routing.n_used = spec.n_used;
  routing.experts.resize(n_tokens * spec.n_used);
  routing.weights.resize(n_tokens * spec.n_used);
  routing.candidates.Clear(candidates);
  for (size_t t = 0; t < n_tokens; ++t) {
    const std::span row = logits.subspan(t * spec.n_expert, spec.n_expert);
    const size_t first = t * spec.n_used;
    const uint32_t best = std::max(spec.n_used, candidates);
    if (rule.experts.empty()) {
      RouteRow(spec, row, selection_bias, best);
    } else {
      const size_t n_given = rule.experts.size() / n_tokens;
      FollowRow(spec, row, rule.experts.subspan(t * n_given, n_given), best);
    }
    for (size_t k = 0; k < spec.n_used; ++k) {
      routing.experts[first + k] = ExpertId{order_[k]};
      routing.weights[first + k] = probabilities_[order_[k]];
    }
    WeighChosen(spec, std::span(routing.weights).subspan(first, spec.n_used));
    if (candidates == 0) continue;
    // Logits still separate experts whose probabilities are equal in F32.
    const bool is_given = !rule.experts.empty();
    const bool by_logit = selection_bias.empty() && spec.n_group == 1 && !is_given;
    const std::span<const float> scores = by_logit ? row : std::span<const float>(selection_);
    AddCandidates(scores, RangeOf(is_given ? std::span<const float>(probabilities_) : scores),
                  routing.candidates);
  }
}

bool Router::AreChoices(const RouterSpec& spec, std::span<const float> logits,
                        std::span<const float> selection_bias, std::span<const ExpertId> experts) {
  CHECK(logits.size() / spec.n_expert * spec.n_used == experts.size());
  const bool by_logit = selection_bias.empty() && spec.n_group == 1;
  for (size_t t = 0; t < logits.size() / spec.n_expert; ++t) {
    const std::span row = logits.subspan(t * spec.n_expert, spec.n_expert);
    const std::span its = experts.subspan(t * spec.n_used, spec.n_used);
    if (by_logit && AreClearlyBest(row, its)) continue;
    RouteRow(spec, row, selection_bias, spec.n_used);
    const auto same = [](uint16_t best, ExpertId chosen) { return best == chosen.value; };
    if (!std::ranges::equal(std::span(order_).first(spec.n_used), its, same)) return false;
  }
  return true;
}

void WeighChosen(const RouterSpec& spec, std::span<float> values) {
  if (spec.gating == Gating::kSoftmaxOfChosen) Softmax(values, values);
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
  Routing routing;
  Router().Route(spec, logits, selection_bias, candidates, routing);
  return routing;
}

}  // namespace moestro
