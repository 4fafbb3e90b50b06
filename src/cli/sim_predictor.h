// SPDX-License-Identifier: MIT
// Which predictor `moestro sim` replays with.
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
  std::string paths = {};                 // file of what "paths" has learned
  std::optional<uint32_t> prefetch = {};  // layers; 0: predictions inform the policy only
};

// --predictor, --paths and --prefetch. `predictor` must outlive the parsing.
void AddPredictorFlags(Flags sim, SimPredictor& predictor);

// Reads the paths if they are needed. kUsage: they are not named; else what ReadPathsFor() says.
Result<PredictorChoice> ChoosePredictor(const SimPredictor& predictor, const TraceInfo& info);

}  // namespace moestro
