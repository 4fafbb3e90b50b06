// SPDX-License-Identifier: MIT
// The report of `run` about the steps that --quality checked.
#pragma once

#include <string>

#include "base/json.h"
#include "text/divergence.h"

namespace moestro {

// A line for the summary, with a newline. `wish`: the value of --quality. `is_exact`: the run is
// exact, so no step is checked.
std::string DescribeOneStepKl(const OneStepKl& kl, double wish, bool is_exact);
void AddOneStepKl(Json& object, const OneStepKl& kl, double wish);

}  // namespace moestro
