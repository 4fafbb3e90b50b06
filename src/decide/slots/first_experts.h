// SPDX-License-Identifier: MIT
// The experts that fill slots before any use is counted, in memory and on devices. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/ids.h"
#include "core/run_identity.h"
#include "decide/ahead/path_table.h"

namespace moestro {

// Orders of a model's experts, by which slots are filled before any use is counted. Pure.

// Layer by layer, the model's own copies.
std::vector<ExpertKey> AllExperts(const MoeShape& shape);
// The experts with the highest counts first; of equals the earlier layer. counts: [layer][expert].
std::vector<ExpertKey> MostFirst(const MoeShape& shape, std::span<const uint64_t> counts);
// Popularity of the path table's experts, [layer][expert], in a measure of its own. The table has
// none for the first layer, whose experts count as K of E.
std::vector<uint64_t> PopularityOf(const PathTable& paths);
// The most popular experts first.
std::vector<ExpertKey> ByPopularity(const PathTable& paths);

// Divides experts among devices whose experts stay the same (DeviceTierSetup::is_settled): every
// layer gives each device the same share. The engine uploads by it, and the simulator starts with
// it. Pure.

// The experts of each device, [device], that has room for `room` experts. Grouped by layer, hot
// layers first.
// n_experts: [layer]. first: the most popular experts in order, of which the first `kept` stay with
// memory unless all others have found a place; empty: popularity is unknown. REQUIRES: `first`
// names experts of these layers.
std::vector<std::vector<ExpertKey>> SharesOf(std::span<const uint32_t> n_experts,
                                             std::span<const ExpertKey> first, uint64_t kept,
                                             std::span<const uint64_t> room);

}  // namespace moestro
