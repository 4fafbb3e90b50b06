// SPDX-License-Identifier: MIT
// The makers of all predictors, one per file of this folder.
#pragma once

#include <memory>

#include "decide/path_table.h"
#include "decide/predictor.h"

namespace moestro {

// What followed the experts of the two layers before, in routing that `table` was learned from.
// REQUIRES: Reset() gets the table's shape.
std::unique_ptr<Predictor> MakePaths(std::shared_ptr<const PathTable> table);

}  // namespace moestro
