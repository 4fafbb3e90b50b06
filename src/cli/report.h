// SPDX-License-Identifier: MIT
// Reports of a run for the user: errors, the summary on stderr, the numbers of --json.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "decide/ahead/prefetch_planner.h"
#include "engine/run_report.h"

namespace moestro {

// Prints "moestro: <message>" to stderr and returns the exit code: 2 for kUsage, else 1.
int PrintError(const Error& error);
// 0, or the result of PrintError().
int ExitCode(const Status& status);

// Several lines for people, with a final newline.
std::string SummaryText(const RunReport& report);
// Adds the report's numbers under the names of `bench --json`, to `object`.
void AddReport(Json& object, const RunReport& report);

// One line, or one array item, for each distance with predictions, the nearest first.
std::string ScoresText(std::string_view begin, const std::vector<PredictionScore>& scores);
Json ScoresAsJson(const std::vector<PredictionScore>& scores);

}  // namespace moestro
