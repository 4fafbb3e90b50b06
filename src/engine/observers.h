// SPDX-License-Identifier: MIT
// What may look on while tokens pass: traces and tests. Called in the engine thread.
#pragma once

#include <functional>
#include <span>

#include "core/ids.h"
#include "core/routing.h"
#include "decide/slot_table.h"

namespace moestro {

// A layer's routing of a batch of tokens.
struct SeenRouting {
  LayerId layer;
  const Routing& routing;
  Use use;
  // [distance - 1][token][K]: what the routers of the next layers choose on this layer's input, as
  // far as the observer asked for it and there are layers.
  std::span<const ExpertId> ahead;
};
// As soon as it is known; layers in order.
using RouteObserver = std::function<void(const SeenRouting&)>;

}  // namespace moestro
