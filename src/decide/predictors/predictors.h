// SPDX-License-Identifier: MIT
// One maker per predictor; predictor_registry.cc gives them names.
#pragma once

#include <memory>

#include "decide/predictor.h"

namespace moestro {

std::unique_ptr<Predictor> MakeStacked();
std::unique_ptr<Predictor> MakeFrequency();

}  // namespace moestro
