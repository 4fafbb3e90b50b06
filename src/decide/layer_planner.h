// SPDX-License-Identifier: MIT
// A layer's routing and what is in memory -> a LayerPlan. Pure functions of values.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "core/batch.h"
#include "core/ids.h"
#include "core/layer_plan.h"
#include "core/routing.h"

namespace moestro {

// True for an expert that is in memory or on its way there.
using ExpertPresence = std::function<bool(ExpertKey)>;

// Experts that are present come first, so that none of the absent ones evicts them and the team has
// work while the others arrive; otherwise in order of first appearance in the routing.
// kinds: [n_rows].
LayerPlan PlanLayer(LayerId layer, const Routing& routing, std::span<const RowKind> kinds,
                    const ExpertPresence& is_present);

// The experts of the layer after `layer` if a prompt of that many rows should read them before it
// is routed there; empty if not. It pays only if nearly all of them will be needed.
std::vector<ExpertKey> PlanReadAhead(LayerId layer, uint32_t n_layer, uint32_t n_expert,
                                     uint32_t n_used, size_t prompt_rows);

}  // namespace moestro
