// SPDX-License-Identifier: MIT
// Counts how often decode and prompts use experts, wherever these run. Pure.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "core/ids.h"
#include "core/layer_plan.h"

namespace moestro {

class ExpertUses {
 public:
  // Steps after which a use by decode counts half. So a count also estimates the uses to come.
  static constexpr double kHalfLife = 64.0;

  void BeginStep() {
    ++step_;
    decodes_ = false;
  }
  // Counts the uses of a layer's experts, those of prompts only if wished.
  void Count(const LayerPlan& plan, bool with_prompts);
  // Steps that have decoded.
  uint64_t decoded() const { return decoded_; }
  // Counts the expert as used in every step before with probability `share`.
  void Assume(ExpertKey key, double share);
  double Of(ExpertKey key) const;

  bool has_prompt() const { return !prompt_rows_.empty(); }
  void ForgetPrompt() { prompt_rows_.clear(); }

  // Uses by decode, or in rows by prompts, of experts [layer][expert]; their number, and the used
  // experts with the most used first, of equals the lesser key.
  enum class By : uint8_t { kDecode, kPrompt };
  std::vector<double> Table(By by, uint32_t n_layers, uint32_t n_expert) const;
  std::vector<ExpertKey> MostFirst(By by) const;

 private:
  struct Uses {
    double count = 0.0;
    uint64_t step = 0;  // the step for which `count` is right
  };
  std::unordered_map<ExpertKey, Uses> uses_;
  uint64_t step_ = 0;
  uint64_t decoded_ = 0;
  bool decodes_ = false;                                 // the step
  std::unordered_map<ExpertKey, uint64_t> prompt_rows_;  // uses by prompts
};

}  // namespace moestro
