// SPDX-License-Identifier: MIT
// Joins several runs of a benchmark into one.
#pragma once

#include <vector>

#include "base/json.h"

namespace moestro {

// Every number becomes the median of the runs'; other values are those of the first run. A number
// that is the same in all runs keeps its type, so that counts stay integers.
// REQUIRES: runs are not empty and are objects with the same keys.
Json MediansOf(const std::vector<Json>& runs);

}  // namespace moestro
