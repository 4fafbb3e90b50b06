// SPDX-License-Identifier: MIT
// The flags that trade exactness for speed.
#pragma once

#include "cli/flags.h"
#include "decide/layer/little_options.h"
#include "engine/engine_options.h"

namespace moestro {

// Of an engine: where low copies and norms come from, and what they are for. `options` must outlive
// the parsing.
void AddLossyFlags(Flags flags, EngineOptions& options);
// What may be coarsened or left out, alone.
void AddLossyFlags(Flags flags, LossyOptions& lossy);
// Fewer experts in a first pass. `little` must outlive the parsing.
void AddLittleFlags(Flags flags, LittleOptions& little);

}  // namespace moestro
