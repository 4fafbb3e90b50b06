// SPDX-License-Identifier: MIT
#include "offline/eval/one_step_kl.h"

#include <algorithm>
#include <cmath>

#include "offline/eval/eval_stats.h"

namespace moestro {

void OneStepKl::Add(std::span<const float> exact, std::span<const float> actual) {
  exact_.resize(exact.size());
  actual_.resize(actual.size());
  LogSoftmax(exact, exact_);
  LogSoftmax(actual, actual_);
  const double kl = Divergence(exact_, actual_);
  ++tokens_;
  sum_ += kl;
  squares_ += kl * kl;
}

double OneStepKl::mean() const { return tokens_ > 0 ? sum_ / static_cast<double>(tokens_) : 0.0; }

std::optional<double> OneStepKl::error() const {
  if (tokens_ < 2) return std::nullopt;
  const auto n = static_cast<double>(tokens_);
  const double variance = std::max(squares_ - n * mean() * mean(), 0.0) / (n - 1.0);
  return std::sqrt(variance / n);
}

}  // namespace moestro
