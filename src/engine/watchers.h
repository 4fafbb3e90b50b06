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
#include "core/routing.h"
#include "decide/slots/slot_table.h"

namespace moestro {

// A layer's routing of the rows of a step.
struct SeenRouting {
  ExpertLayerId layer;
  const Routing& routing;
  std::span<const RowKind> kinds;  // [row]
  // [distance - 1][row][K]: what the routers of the next layers choose on this layer's input, as
  // far as the observer asked for it and there are layers.
  std::span<const ExpertId> ahead;
  std::span<const float> ahead_weights;  // of these
  // Of a little step: the routing has K' experts of each row and at least K candidates, and ahead
  // K' in place of K.
  bool is_little = false;
};
// As soon as it is known; layers in order.
using RouteObserver = std::function<void(const SeenRouting&)>;

// Experts that later layers' routers choose on a layer's input, and with what weight.
struct RoutedAhead {
  std::vector<ExpertId> experts = {};  // [distance - 1][row][K]
  std::vector<float> weights = {};     // of these; empty: not known
};

// Puts other choices in place of a layer's routing and of what later routers would say, for
// measurements with recorded routing. Shapes stay.
using RoutingOverride =
    std::function<void(ExpertLayerId layer, Routing& routing, RoutedAhead& ahead)>;

// Which copy of an expert of a plan runs, for measurements; the plan is exact before. REQUIRES:
// there is such a copy.
using CopyOverride = std::function<CopyId(ExpertKey own)>;

// A layer's plan, before its experts are asked for.
using PlanObserver = std::function<void(const LayerPlan&)>;

// What the matrices of a layer's experts were multiplied with, as values before ggml quantises
// them, and what came out. The spans live until the observer returns.
struct SeenExperts {
  const LayerPlan& plan;
  std::span<const float> inputs;    // [row][n_embd]: of gate and up
  std::span<const float> products;  // [pair of the plan][n_ff], activation(gate, up): of down
  std::span<const float> results;   // [pair of the plan][n_embd], before the router's weight
};
// After the experts of a layer have run; layers in order.
using ExpertObserver = std::function<void(const SeenExperts&)>;

// All of them; empty: the routers and plans decide.
struct Watchers {
  RouteObserver route;
  // Layers whose routers are evaluated ahead of time for it, at least, and whether it wants to know
  // who else could run.
  uint32_t look_ahead = 0;
  bool wants_candidates = false;
  RoutingOverride routing;
  CopyOverride copies;
  PlanObserver plan;
  ExpertObserver experts;

  // Of an exact plan.
  void OverrideCopies(LayerPlan& its) const {
    if (!copies) return;
    for (PlannedExpert& expert : its.experts) expert.key.copy = copies(expert.key);
  }
};

}  // namespace moestro
