// SPDX-License-Identifier: MIT
// Decides whether a token that was decoded with fewer experts stays. Pure. Source: MoBiLE.
#pragma once

#include <span>
#include <vector>

#include "decide/layer/little_options.h"

namespace moestro {

// The largest softmax probability of a row's logits, before any sampling; NaN if one of them is.
double Confidence(std::span<const float> logits);

class LittleJudge {
 public:
  explicit LittleJudge(const LittleOptions& options) : options_(options) {}

  // Whether the next row's token stays.
  bool Keeps(double confidence);

 private:
  LittleOptions options_;
  // With fallback_share: all confidences so far, ascending, and the number of tokens that did not
  // stay.
  std::vector<double> seen_;
  double again_ = 0.0;
};

}  // namespace moestro
