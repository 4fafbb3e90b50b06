// SPDX-License-Identifier: MIT
// The output of `eval`.
#pragma once

#include <cstdint>
#include <string>

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

}  // namespace moestro
