// SPDX-License-Identifier: MIT
// Orders of a model's experts, by which slots are filled before any use is counted. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/ids.h"
#include "core/run_identity.h"
#include "decide/ahead/path_table.h"

namespace moestro {

// Layer by layer, the model's own copies.
std::vector<ExpertKey> AllExperts(const MoeShape& shape);
// The experts with the highest counts first; of equals the earlier layer. counts: [layer][expert].
std::vector<ExpertKey> MostFirst(const MoeShape& shape, std::span<const uint64_t> counts);
// The most popular experts of the path table first. The table has no popularity for the first
// layer, whose experts count as K of E.
std::vector<ExpertKey> ByPopularity(const PathTable& paths);

}  // namespace moestro
