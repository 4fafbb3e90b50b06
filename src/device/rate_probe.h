// SPDX-License-Identifier: MIT
// How fast the team multiplies weights of a type, without a model.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "core/machine_rates.h"
#include "device/team.h"

namespace moestro {

// Rates of each type, by ggml's names, in about 0.2 s for each, with up to kRateMemory bytes of
// memory beside their weights' own. Types that the CPU does not multiply are left out.
// kInvalidRequest: a name that ggml does not know; kNoMemory.
// Rates are medians of several passes: what a run gets, not what a quiet moment gives.
inline constexpr size_t kRateMemory = size_t{192} << 20;
Result<std::vector<KernelRate>> ProbeKernelRates(Team& team, const std::vector<std::string>& types);

// Seconds in which all threads get work that is nothing and have done it, while they are held
// together as in a decode step: a median. kNoMemory.
Result<double> ProbeBarrier(Team& team);

}  // namespace moestro
