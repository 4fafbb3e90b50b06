// SPDX-License-Identifier: MIT
// The predictor for replays of `moestro sim`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "cli/flags.h"
#include "decide/ahead/predictor.h"
#include "trace/trace.h"

namespace moestro {

struct SimPredictor {
  std::string name = "none";
  std::string paths = {};                 // file of the predictor "paths"
  std::optional<uint32_t> prefetch = {};  // layers; 0: predictions inform the policy only
};

// --predictor, --paths and --prefetch. `predictor` must outlive the parsing.
void AddPredictorFlags(Flags sim, SimPredictor& predictor);

// Reads the paths if they are needed. kUsage: the file is not named; else errors of ReadPathsFor().
Result<PredictorChoice> ChoosePredictor(const SimPredictor& predictor, const TraceInfo& info);

}  // namespace moestro
