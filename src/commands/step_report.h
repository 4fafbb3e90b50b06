// SPDX-License-Identifier: MIT
// Reports of `run` about its steps: the plans of the latest one, and the checks of --quality.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "core/layer_plan.h"
#include "text/divergence.h"

namespace moestro {

// The report of `run` about the steps that --quality checked.

// A line for the summary, with a newline. `wish`: the value of --quality. `is_exact`: the run is
// exact, so no step is checked.
std::string DescribeOneStepKl(const OneStepKl& kl, double wish, bool is_exact);
void AddOneStepKl(Json& object, const OneStepKl& kl, double wish);

// Keeps the plans of the latest step and prints them for `run --explain`.

class PlanLog {
 public:
  // Layers come in order; layer 0 begins a step.
  void Note(const LayerPlan& plan);
  // One line for each layer, with its experts in the order of requests and the router's weights.
  // "memory": the expert was in memory or on its way. "disk": it was not. A device's name: the
  // expert ran from a slot of the device. "... to" and the name: it was copied first. In a step of
  // several rows, the weight of each row that uses the expert follows the row's number. `devices`:
  // their names, as plans number them.
  std::string Text(std::span<const std::string> devices) const;

 private:
  std::vector<LayerPlan> plans_;
};

}  // namespace moestro
