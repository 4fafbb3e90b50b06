// SPDX-License-Identifier: MIT
// `moestro inspect` of a model that the hosted engine runs: reads libllama's graph and no weight.
#pragma once

#include "base/result.h"
#include "cli/common_flags.h"
#include "cli/output.h"
#include "load/model_to_load.h"

namespace moestro {

// Prints the model and the plan of the budget; as one object with --json. Errors: those of
// MeasureFixed(), and of the output.
Status InspectHosted(const ModelToLoad& model, const CommonOptions& options, Output& output);

}  // namespace moestro
