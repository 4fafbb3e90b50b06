// SPDX-License-Identifier: MIT
#include "decide/router.h"

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

void Softmax(std::span<const float> logits, std::vector<float>& probabilities) {
  float largest = -std::numeric_limits<float>::infinity();
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

void Weigh(const RouterSpec& spec, std::span<float> weights) {
  if (spec.renormalise) {
    const float sum = std::max(std::accumulate(weights.begin(), weights.end(), 0.0F), kSmallestSum);
    for (float& w : weights) w /= sum;
  }
  if (spec.weight_scale != 0.0F && spec.weight_scale != 1.0F) {
    for (float& w : weights) w *= spec.weight_scale;
  }
}

}  // namespace

Routing Route(const RouterSpec& spec, std::span<const float> logits) {
  CHECK(spec.n_used > 0 && spec.n_used <= spec.n_expert);
  CHECK(logits.size() % spec.n_expert == 0);
  const size_t n_tokens = logits.size() / spec.n_expert;
  Routing routing{.n_tokens = static_cast<uint32_t>(n_tokens),
                  .n_used = spec.n_used,
                  .experts = std::vector<ExpertId>(n_tokens * spec.n_used),
                  .weights = std::vector<float>(n_tokens * spec.n_used)};
  std::vector<float> probabilities(spec.n_expert);
  std::vector<uint16_t> order(spec.n_expert);
  for (size_t t = 0; t < n_tokens; ++t) {
    Softmax(logits.subspan(t * spec.n_expert, spec.n_expert), probabilities);
    std::iota(order.begin(), order.end(), uint16_t{0});
    const auto by_probability = [&](uint16_t a, uint16_t b) {
      return probabilities[a] != probabilities[b] ? probabilities[a] > probabilities[b] : a < b;
    };
    std::partial_sort(order.begin(), order.begin() + spec.n_used, order.end(), by_probability);
    for (size_t k = 0; k < spec.n_used; ++k) {
      routing.experts[t * spec.n_used + k] = ExpertId{order[k]};
      routing.weights[t * spec.n_used + k] = probabilities[order[k]];
    }
    Weigh(spec, std::span(routing.weights).subspan(t * spec.n_used, spec.n_used));
  }
  return routing;
}

}  // namespace moestro
