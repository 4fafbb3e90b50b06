// SPDX-License-Identifier: MIT
// The flags that trade exactness for speed.
#pragma once

#include "cli/flags.h"
#include "engine/engine_options.h"

namespace moestro {

// `options` must outlive the parsing.
void AddLossyFlags(Flags flags, EngineOptions& options);

}  // namespace moestro
