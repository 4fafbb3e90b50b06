// SPDX-License-Identifier: MIT
// Keeps the plans of the latest step and prints them: what `run --explain` shows.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/layer_plan.h"

namespace moestro {

class PlanLog {
 public:
  // Layers come in order; layer 0 begins a step.
  void Note(const LayerPlan& plan);
  // A line for each layer: experts in the order in which they were asked for, "memory" for those
  // that were there or on their way, "disk" for the others, a device's name for what ran from a
  // slot there and "... to" it for what was copied first, with the router's weight; where a step
  // has several rows, of each row that uses the expert, behind its number. `devices`: their names,
  // as plans number them.
  std::string Text(std::span<const std::string> devices) const;

 private:
  std::vector<LayerPlan> plans_;
};

}  // namespace moestro
