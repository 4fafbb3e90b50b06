// SPDX-License-Identifier: MIT
// `moestro inspect` of a model that the hosted engine runs: libllama is asked what its graph does,
// no weight is read.
#pragma once

#include "base/result.h"
#include "cli/common_flags.h"
#include "cli/output.h"
#include "load/model_to_load.h"

namespace moestro {

// Prints the model, and where the budget would go; as one object with --json. Errors: those of
// HostedEngine::Plan(), and of the output.
Status InspectHosted(const ModelToLoad& model, const CommonOptions& options, Output& output);

}  // namespace moestro
