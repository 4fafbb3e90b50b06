// SPDX-License-Identifier: MIT
// Divides experts among devices whose experts stay the same (DeviceTierParts::is_settled): every
// layer gives each device the same share. The engine uploads by it, and the simulator starts with
// it. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/ids.h"

namespace moestro {

// The experts of each device, [device], that has room for `room` experts. Grouped by layer, hot
// layers first.
// n_experts: [layer]. first: the most popular experts in order, of which the first `kept` stay with
// memory unless all others have found a place; empty: popularity is unknown. REQUIRES: `first`
// names experts of these layers.
std::vector<std::vector<ExpertKey>> SharesOf(std::span<const uint32_t> n_experts,
                                             std::span<const ExpertKey> first, uint64_t kept,
                                             std::span<const uint64_t> room);

}  // namespace moestro
