// SPDX-License-Identifier: MIT
#include "text/divergence.h"

#include <algorithm>
#include <cmath>

#include "base/result.h"

namespace moestro {

void LogSoftmax(std::span<const float> logits, std::span<float> log_probs) {
  CHECK(!logits.empty() && logits.size() == log_probs.size());
  const double most = std::ranges::max(logits);
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(logit - most);
  const double log_sum = most + std::log(sum);
  for (size_t i = 0; i < logits.size(); ++i) {
    log_probs[i] = static_cast<float>(logits[i] - log_sum);
  }
}

double Divergence(std::span<const float> exact, std::span<const float> lossy) {
  CHECK(exact.size() == lossy.size());
  double sum = 0.0;
  for (size_t i = 0; i < exact.size(); ++i) {
    if (exact[i] == lossy[i]) continue;
    const double p = std::exp(double{exact[i]});
    const double q = std::exp(double{lossy[i]});
    // A probability of 0 is left out, because its logarithm is infinite.
    const double gained = p > 0.0 ? p * (double{exact[i]} - double{lossy[i]}) : 0.0;
    sum += std::max(0.0, gained - p + q);
  }
  return sum;
}

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
