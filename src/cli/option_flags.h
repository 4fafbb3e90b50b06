// SPDX-License-Identifier: MIT
// The engine's options as flags, from their table.
#pragma once

#include <span>

#include "cli/flags.h"
#include "engine/engine_options.h"
#include "engine/option_table.h"

namespace moestro {

// The heading of options that make the output inexact.
inline constexpr const char* kLossyHeading =
    "Cheaper misses (output is no longer exact; 'moestro eval' measures by how much)";

// Adds a flag for each row, under the heading of its part. `options` must outlive the parsing; the
// rows must outlive this call.
void AddOptionFlags(Flags flags, EngineOptions& options,
                    std::span<const OptionRow> table = OptionTable());
// Adds the flags of one part alone.
void AddOptionFlags(Flags flags, EngineOptions& options, OptionPart part);

// Excludes --quality together with a flag that --quality chooses. REQUIRES: AddOptionFlags(flags,
// ...) of the table.
void ExcludeChosenByQuality(Flag quality);

}  // namespace moestro
