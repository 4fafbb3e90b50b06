// SPDX-License-Identifier: MIT
// Divergence of rows of probabilities, and of single steps of a lossy run from exact steps on the
// same history, which --quality measures during a run. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace moestro {

inline constexpr uint32_t kCheckEvery = 128;  // tokens

// log_probs[i] = log of the softmax of `logits` at i, rounded to F32 once; sums are F64.
// `log_probs` may be `logits`. REQUIRES: equal sizes, not empty.
void LogSoftmax(std::span<const float> logits, std::span<float> log_probs);

// KL(exact || lossy) in nats, as the sum of p (log p - log q) - p + q. Its terms are not negative,
// and deviations of the sums of p and q from 1 by rounding to F32 cancel. Equal rows give 0 to the
// bit.
double Divergence(std::span<const float> exact, std::span<const float> lossy);

// Divergence of steps. The KL of `moestro eval` differs, because its exact run has its own history.
class OneStepKl {
 public:
  // Adds the logits of one step, both [n_vocab].
  void Add(std::span<const float> exact, std::span<const float> actual);

  uint64_t tokens() const { return tokens_; }
  double mean() const;  // nats per token; 0 without tokens
  // Standard error. Checked tokens are far apart and count as independent. nullopt: fewer than two.
  std::optional<double> error() const;

 private:
  uint64_t tokens_ = 0;
  double sum_ = 0.0;
  double squares_ = 0.0;
  std::vector<float> exact_;  // log-probabilities
  std::vector<float> actual_;
};

}  // namespace moestro
