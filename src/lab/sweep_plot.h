// SPDX-License-Identifier: MIT
// Hit rates of policies over the number of slots as a drawing.
#pragma once

#include <string>
#include <vector>

#include "sim/sweep.h"

namespace moestro {

// A complete SVG: one line per policy over the slots' share of all experts (logarithmic), a dashed
// line for Belady, axes and a legend. `title` may hold any text. REQUIRES: lines are not empty and
// their percentages are above 0.
std::string SweepPlot(const std::string& title, const std::vector<SweepLine>& lines);

}  // namespace moestro
