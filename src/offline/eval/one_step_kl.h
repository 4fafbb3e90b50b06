// SPDX-License-Identifier: MIT
// Divergence of single steps of a lossy run from exact steps on the same history, which --quality
// measures during a run. The KL of `moestro eval` differs, because its exact run has its own
// history.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace moestro {

inline constexpr uint32_t kCheckEvery = 128;  // tokens

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
