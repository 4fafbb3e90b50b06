// SPDX-License-Identifier: MIT
// What may look on while tokens pass: traces and tests. Called in the engine thread.
#pragma once

#include <functional>

#include "core/ids.h"
#include "core/routing.h"
#include "decide/slot_table.h"

namespace moestro {

// A layer's routing, as soon as it is known; layers in order, a batch of tokens at a time.
using RouteObserver = std::function<void(LayerId, const Routing&, Use)>;

}  // namespace moestro
