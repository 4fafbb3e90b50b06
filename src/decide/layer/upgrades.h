// SPDX-License-Identifier: MIT
// Chooses own copies that are worth reading although no layer waits for them: those of experts
// whose low copies keep running. Counts of steps decide, not time. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/ids.h"
#include "core/layer_plan.h"
#include "core/run_identity.h"

namespace moestro {

class Upgrades {
 public:
  // REQUIRES: keys stay below the counts of `shape`.
  explicit Upgrades(const MoeShape& shape) : shape_(shape), seen_(shape.experts()) {}

  // A layer's plan of a decode step; the shape's first decode layer begins one. Returns the own
  // copy to read, if any: of an expert that ran from its low copy for the second time within
  // kWindow steps.
  std::optional<ExpertKey> Next(const LayerPlan& plan);

 private:
  static constexpr uint64_t kWindow = 16;      // steps
  static constexpr uint32_t kMostPerStep = 2;  // each is an expert's worth of disk time

  MoeShape shape_;
  std::vector<uint64_t> seen_;  // [layer][expert]: the step of the last low use; 0: none
  uint64_t step_ = 0;
  uint32_t in_step_ = 0;
};

}  // namespace moestro
