// SPDX-License-Identifier: MIT
// One maker per predictor; predictor_registry.cc gives them names.
#pragma once

#include <memory>

#include "decide/ahead/path_table.h"
#include "decide/ahead/predictor.h"

namespace moestro {

std::unique_ptr<Predictor> MakeNextRouter();
std::unique_ptr<Predictor> MakeFrequency();
// Predicts the experts that followed those of the two layers before, in routing that `table` was
// learned from. REQUIRES: Reset() gets the table's shape.
std::unique_ptr<Predictor> MakePaths(std::shared_ptr<const PathTable> table);

}  // namespace moestro
