// SPDX-License-Identifier: MIT
// Orders of a model's experts, for who gets a slot when there is nothing to go by yet. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/ids.h"
#include "core/model_id.h"
#include "decide/ahead/path_table.h"

namespace moestro {

// Layer by layer, the model's own copies.
std::vector<ExpertKey> AllExperts(const MoeShape& shape);
// Those with the highest counts first; of equals the earlier layer. counts: [layer][expert].
std::vector<ExpertKey> MostFirst(const MoeShape& shape, std::span<const uint64_t> counts);
// The most asked for first, by what was learned; nothing is known of the first layer's, which count
// as K of E.
std::vector<ExpertKey> ByPopularity(const PathTable& paths);

}  // namespace moestro
