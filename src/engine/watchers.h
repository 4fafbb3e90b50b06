// SPDX-License-Identifier: MIT
// Callbacks for traces, --explain, importances and tests. Called in the engine thread while a step
// runs.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/batch.h"
#include "core/ids.h"
#include "core/layer_plan.h"
#include "decide/slots/slot_table.h"

namespace moestro {

// A layer's routing of the rows of a step.
struct SeenRouting {
  ExpertLayerId layer;
  const Routing& routing;
  std::span<const RowKind> kinds;  // [row]
  // [distance - 1][row][K]: the experts that the routers of the next layers choose on this layer's
  // input. Distances go up to the observer's look_ahead and to the last layer.
  std::span<const ExpertId> ahead;
  std::span<const float> ahead_weights;  // weights of `ahead`
  // The step is a little step: the routing has K' experts of each row and at least K candidates,
  // and `ahead` has K' in place of K.
  bool is_little = false;
};
// Called as soon as a layer's routing is known; layers in order.
using RouteObserver = std::function<void(const SeenRouting&)>;

// Experts that later layers' routers choose on a layer's input, and their weights.
struct RoutedAhead {
  std::vector<ExpertId> experts = {};  // [distance - 1][row][K]
  std::vector<float> weights = {};     // weights of `experts`; empty: not known
};

// Replaces a layer's routing and the choices of later routers, for measurements with recorded
// routing. Shapes do not change.
using RoutingOverride =
    std::function<void(ExpertLayerId layer, Routing& routing, RoutedAhead& ahead)>;

// Chooses the copy of an expert of a plan that runs, for measurements. The plan is exact before.
// REQUIRES: the model has the copy.
using CopyOverride = std::function<CopyId(ExpertKey own)>;

// Called with a layer's plan before its experts are requested.
using PlanObserver = std::function<void(const LayerPlan&)>;

// The inputs and results of the matrices of a layer's experts. Inputs are values before ggml
// quantises them. The spans live until the observer returns.
struct SeenExperts {
  const LayerPlan& plan;
  std::span<const float> inputs;  // [row][n_embd_expert]: inputs of gate and up
  // [pair of the plan][n_ff], activation(gate, up): inputs of down
  std::span<const float> products;
  std::span<const float> results;  // [pair of the plan][n_embd_expert], before the router's weight
  std::span<const float> scale = {};  // [expert]: factor of the results; empty: 1
};
// Called after the experts of a layer have run; layers in order.
using ExpertObserver = std::function<void(const SeenExperts&)>;

// All observers and overrides; empty: the routers and plans decide.
struct Watchers {
  RouteObserver route;
  // For `route`: the least number of layers whose routers are evaluated ahead of time, and whether
  // it needs the next best experts of each layer.
  uint32_t look_ahead = 0;
  bool wants_candidates = false;
  RoutingOverride routing;
  CopyOverride copies;
  PlanObserver plan;
  ExpertObserver experts;

  // REQUIRES: the plan is exact.
  void OverrideCopies(LayerPlan& its) const {
    if (!copies) return;
    for (PlannedExpert& expert : its.experts) expert.key.copy = copies(expert.key);
  }
};

}  // namespace moestro
