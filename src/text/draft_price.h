// SPDX-License-Identifier: MIT
// Prices drafts before any has been tried, from what plain steps of this machine cost: a step of
// more rows reads and computes the union of the rows' experts, while everything else is read once
// for all rows. Pure.
#pragma once

#include <cstdint>

namespace moestro {

// Costs of plain steps, in the mean.
struct StepCosts {
  double seconds = 0.0;
  double wait_seconds = 0.0;   // of these: nothing to do but wait for experts' bytes
  double touched_bytes = 0.0;  // of weights, keys and values, read from memory
  double expert_bytes = 0.0;   // of these: of experts
};

// In plain steps.
struct DraftPrices {
  double row = 0.0;    // of one more row in a step
  double draft = 0.0;  // of drafting a token

  double both() const { return row + draft; }
};

// Prices of drafts by a layer that predicts further tokens. predicting_bytes: read for a token
// of a draft; n_expert_layers: layers with experts that a plain step goes through. Zeros, if plain
// steps took no time.
DraftPrices PriceDrafts(const StepCosts& plain, double predicting_bytes, uint32_t n_expert_layers);

// The mean over the latest plain steps.
class StepCostMean {
 public:
  void Add(const StepCosts& step);
  const StepCosts& mean() const { return mean_; }
  uint32_t steps() const { return steps_; }

 private:
  StepCosts mean_;
  uint32_t steps_ = 0;
};

}  // namespace moestro
