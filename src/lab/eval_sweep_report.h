// SPDX-License-Identifier: MIT
// The results of `eval --sweep`, as a table and as a drawing of speed against error.
#pragma once

#include <string>
#include <vector>

#include "offline/eval/eval_sweep.h"

namespace moestro {

// A head line and a line per point: the knobs, the figures under their names in --json, and
// `pareto` (0 or 1).
std::string SweepAsCsv(const std::vector<EvalPoint>& points);
// An SVG: tokens per second over mean KL with its standard error, the front joined by a line.
// REQUIRES: points are not empty.
std::string SweepDrawing(const std::string& title, const std::vector<EvalPoint>& points);

}  // namespace moestro
