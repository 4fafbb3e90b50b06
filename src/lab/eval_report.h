// SPDX-License-Identifier: MIT
// The output of `eval`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "offline/eval/eval.h"
#include "offline/eval/eval_tasks.h"

namespace moestro {

// Several lines for people, with a final newline.
std::string DescribeEval(const EvalResult& result);
std::string DescribeTask(const TaskResult& result);
// Report of the figures alone, for a run in shards.
std::string DescribeFigures(const EvalFigures& figures, uint64_t windows);
Json FiguresAsJson(const EvalFigures& figures, uint64_t windows);
// One object: the figures, then the report of bench about the run.
Json EvalAsJson(const EvalResult& result);
// One object: the score, every item's outcome, then the report of bench about the run.
Json TaskAsJson(const TaskResult& result);

// The results of `eval --sweep`, as a table and as a drawing of speed against error.

// A head line and a line per point: the knobs, the figures under their names in --json, and
// `pareto` (0 or 1).
std::string SweepAsCsv(const std::vector<EvalPoint>& points);
// An SVG: tokens per second over mean KL with its standard error, the front joined by a line.
// REQUIRES: points are not empty.
std::string SweepDrawing(const std::string& title, const std::vector<EvalPoint>& points);

}  // namespace moestro
