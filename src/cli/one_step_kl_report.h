// SPDX-License-Identifier: MIT
// What `run` says of the steps that --quality checked.
#pragma once

#include <string>

#include "base/json.h"
#include "offline/eval/one_step_kl.h"

namespace moestro {

// A line for the summary, with a newline. `wish`: what --quality asked for. `is_exact`: the run
// gives nothing up, so nothing is checked.
std::string DescribeOneStepKl(const OneStepKl& kl, double wish, bool is_exact);
void AddOneStepKl(Json& object, const OneStepKl& kl, double wish);

}  // namespace moestro
