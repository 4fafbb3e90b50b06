// SPDX-License-Identifier: MIT
// The engine's options by the names of their flags, for code that gets them as text: the command
// line and sweeps. Knobs are the rows of the table with is_knob.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/run_identity.h"
#include "engine/engine_options.h"
#include "engine/option_table.h"

namespace moestro {

// Names of the knobs in the order of help, without dashes: "ram", "cache", ...
std::vector<std::string_view> KnownKnobs(std::span<const OptionRow> table = OptionTable());
std::string KnobNames();  // KnownKnobs() in one line, for messages
// Sets an option as the flag --name with this value would. kUsage for an unknown name, which lists
// the known ones, and for a value that the flag would refuse.
Status SetKnob(EngineOptions& options, std::string_view name, const std::string& value,
               std::span<const OptionRow> table = OptionTable());

// True for knobs that set the budget: "cache", "ram".
bool IsBudgetKnob(std::string_view name);
// All other knobs with values that are not the defaults. SetKnob() of each setting, applied to
// default options, gives the same knobs as `options`.
KnobSettings ChangedKnobs(const EngineOptions& options,
                          std::span<const OptionRow> table = OptionTable());

}  // namespace moestro
