// SPDX-License-Identifier: MIT
// Turns a layer's routing and the presence of experts into a LayerPlan. Pure functions of values.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "core/batch.h"
#include "core/ids.h"
#include "core/layer_plan.h"

namespace moestro {

// True for an expert that is in memory or on its way there.
using ExpertPresence = std::function<bool(ExpertKey)>;

// Copies that the rows of a step need of their experts, and the treatment of weights when one is
// left out. Empty: each expert's own copy.
struct RowNeeds {
  std::vector<Need> needs;  // [row][K]
  bool has_low = false;     // every expert has a low copy
  bool rescales = false;    // a row's other weights grow to the row's sum
};

// An expert gets the strongest need of its rows. If the own copy is present, it runs; else the low
// copy, if a low copy is needed and present; else the needed copy is read, or the expert is left
// out.
//
// Experts that are present come first, so that none of the absent ones evicts them and the team has
// work while the others arrive; otherwise in order of first appearance in the routing. kinds:
// [n_rows].
//
// A planner keeps its room, and a plan that is given again keeps the memory of its vectors: calls
// for as many rows allocate once.
class LayerPlanner {
 public:
  void Plan(ExpertLayerId layer, const Routing& routing, std::span<const RowKind> kinds,
            const ExpertPresence& is_present, const RowNeeds& needs, LayerPlan& plan);

 private:
  // Each expert of a routing once, with the strongest need of its rows.
  struct Needed {
    PlannedExpert planned;
    Need need = Need::kDrop;
  };
  void Gather(ExpertLayerId layer, const Routing& routing, std::span<const RowKind> kinds,
              const RowNeeds& needs);
  void ChooseCopies(const ExpertPresence& is_present, bool has_low, LayerPlan& plan);
  static bool ChooseCopy(const ExpertPresence& is_present, bool has_low, Needed& expert);
  void PairRows(const Routing& routing, LayerPlan& plan);

  std::vector<Needed> needed_;
  std::vector<PlannedExpert> absent_;
  std::vector<uint32_t> place_of_;  // [expert]
  std::vector<uint32_t> next_;      // [planned expert]: its next pair
};

// Plans one layer with a planner of its own.
LayerPlan PlanLayer(ExpertLayerId layer, const Routing& routing, std::span<const RowKind> kinds,
                    const ExpertPresence& is_present, const RowNeeds& needs = {});

// Multiplies each weight of a plan by its expert's factor, [expert].
// REQUIRES: experts in the order of their pairs, as planned.
void ScaleWeights(std::span<const float> factors, LayerPlan& plan);

// The experts of the layer after `layer` if a prompt of that many rows should read them before its
// routing there; empty if not. Reading ahead pays only if nearly all of them will be needed.
std::vector<ExpertKey> PlanReadAhead(ExpertLayerId layer, uint32_t n_layer, uint32_t n_expert,
                                     uint32_t n_used, size_t prompt_rows);

}  // namespace moestro
