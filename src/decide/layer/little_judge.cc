// SPDX-License-Identifier: MIT
#include "decide/layer/little_judge.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace moestro {

double Confidence(std::span<const float> logits) {
  float largest = -std::numeric_limits<float>::infinity();
  for (const float x : logits) largest = std::max(largest, x);
  double sum = 0.0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x - largest));
  return 1.0 / sum;
}

bool LittleJudge::Keeps(double confidence) {
  if (!options_.fallback_share) return confidence > options_.gamma;
  if (std::isnan(confidence)) return false;
  const auto place = std::ranges::lower_bound(seen_, confidence);
  const auto smaller = static_cast<double>(place - seen_.begin());
  const double rank = (smaller + 0.5) / static_cast<double>(seen_.size() + 1);
  // Confidences drift, so a deficit of the share is made up for within some tokens.
  constexpr double kTokens = 4.0;
  const double owed = *options_.fallback_share * static_cast<double>(seen_.size() + 1) - again_;
  seen_.insert(place, confidence);
  const bool keeps = rank >= *options_.fallback_share + owed / kTokens;
  again_ += keeps ? 0.0 : 1.0;
  return keeps;
}

}  // namespace moestro
