// SPDX-License-Identifier: MIT
// Counts how often decode and prompts use experts, wherever these run. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/ids.h"
#include "core/layer_plan.h"

namespace moestro {

class ExpertUses {
 public:
  // Steps after which a use by decode counts half. So a count also estimates the uses to come.
  static constexpr double kHalfLife = 64.0;

  ExpertUses(uint32_t n_layers, uint32_t n_expert)
      : n_layers_(n_layers),
        n_expert_(n_expert),
        uses_(size_t{n_layers} * n_expert),
        prompt_rows_(uses_.size()) {}

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
  double Of(ExpertKey key) const { return CountAt(At(key)); }

  bool has_prompt() const { return has_prompt_; }
  void ForgetPrompt();

  // Uses by decode, or in rows by prompts, of experts [layer][expert] as they are in the file; and
  // the used experts and low copies with the most used first, of equals the lesser key.
  enum class By : uint8_t { kDecode, kPrompt };
  std::vector<double> Table(By by) const;
  std::vector<ExpertKey> MostFirst(By by) const;

 private:
  struct Uses {
    double count = 0.0;
    uint64_t step = 0;  // the step for which `count` is right
  };
  size_t At(ExpertKey key) const {
    return (size_t{key.copy} * n_layers_ + key.layer.value) * n_expert_ + key.expert.value;
  }
  ExpertKey KeyAt(size_t i) const {
    return {.layer = ExpertLayerId{static_cast<uint16_t>(i / n_expert_ % n_layers_)},
            .expert = ExpertId{static_cast<uint16_t>(i % n_expert_)},
            .copy = static_cast<CopyId>(i / (n_expert_ * n_layers_))};
  }
  size_t RoomAt(ExpertKey key);
  double CountAt(size_t i) const;
  double Count(By by, size_t i) const {
    return by == By::kPrompt ? static_cast<double>(prompt_rows_[i]) : CountAt(i);
  }

  size_t n_layers_;
  size_t n_expert_;
  std::vector<Uses> uses_;             // [copy][layer][expert], as many copies as were used
  std::vector<uint64_t> prompt_rows_;  // [copy][layer][expert]: of prompts
  bool has_prompt_ = false;
  uint64_t step_ = 0;
  uint64_t decoded_ = 0;
  bool decodes_ = false;  // the step
};

}  // namespace moestro
